#!/bin/busybox sh
# shellcheck shell=dash disable=SC2012,SC2013,SC2094,SC3045 # Names are ours, the line is bidirectional, busybox's read has a limit.
# The guest's first program: mounts the usual file systems, loads the modules, names the disks after their serial numbers,
# then runs the commands that the host sends over the second serial line. See guest.rs.
/bin/busybox mkdir -p /bin /sbin /usr/bin /usr/sbin
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
echo 'root:x:0:0:root:/root:/bin/sh' >/etc/passwd

# Prints the values of one of our kernel parameters.
parameter() {
    for word in $(cat /proc/cmdline); do
        case $word in "fathom.$1="*) echo "${word#*=}" ;; esac
    done
}

while read -r module parameters; do
    # shellcheck disable=SC2086 # Several parameters are several words.
    insmod "$module" $parameters
done </modules/order

# SCSI and NVMe disks appear some time after their driver: wait until all are there.
mkdir -p /dev/disk
name_disks() {
    for disk in /sys/block/[vsnm]*; do
        serial=
        node=/dev/${disk##*/}
        case $node in
            /dev/vd*) serial=$(cat "$disk/serial") ;;
            /dev/nvme*) serial=$(cat "$disk/device/serial") ;;
            # A card has a serial number, but not one of ours: cards are named in the order of their hosts.
            /dev/mmcblk[0-9]) serial=$(parameter sd | sed -n "$((${node#/dev/mmcblk} + 1))p") ;;
            # Page 0x80 of a SCSI disk: four bytes of header, then the serial number.
            # scsi_debug's disk is not one of QEMU's.
            /dev/sd*) grep -q scsi_debug "$disk/device/model" || serial=$(tail -c +5 "$disk/device/vpd_pg80") ;;
        esac
        # shellcheck disable=SC2086,SC2116 # Word splitting removes the blanks.
        serial=$(echo $serial)
        [ -z "$serial" ] || ln -sf "$node" "/dev/disk/$serial"
    done
    [ "$(ls /dev/disk | wc -l)" -ge "$(parameter disks)" ]
}
tries=0
until name_disks 2>/dev/null || [ $tries -ge 100 ]; do
    tries=$((tries + 1))
    sleep 0.1
done

if grep -q 9p /proc/filesystems; then
    mkdir -p /share
    mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 share /share
fi

line=/dev/$(parameter line)
ln -s "/dev/$(parameter terminal)" /dev/terminal
stty -F "$line" raw -echo
exec 3<"$line" 4>"$line"
echo '=ready' >&4
# `run SECONDS LENGTH BASE64` in; stdout, stderr and status out. Without a host the machine turns itself off. A busy
# machine's serial line may lose bytes: an incomplete line is requested again.
while read -r -t "$(parameter idle)" run limit length command <&3; do
    if [ "$run" != run ] || [ "${#command}" != "$length" ]; then
        echo '=again' >&4
        continue
    fi
    echo "$command" | base64 -d >/run/command
    # A guest that prints nothing hangs. The heartbeat has ended before anything else is printed.
    while sleep 5; do echo '=alive' >&4; done &
    beat=$!
    timeout "$limit" sh /run/command >/run/stdout 2>/run/stderr </dev/null 3<&- 4>&-
    status=$?
    kill $beat
    wait $beat 2>/dev/null
    # busybox's timeout dies of its own signal: its 143 is coreutils' 124.
    [ $status -ne 143 ] || status=124
    {
        echo '=stdout'
        base64 /run/stdout
        echo '=stderr'
        base64 /run/stderr
        echo "=status $status"
    } >&4
done
poweroff -f
