# shellcheck shell=sh
# Prints the hashes of the programs in the directory $d. They are kept in the file `verified`, below the boot and each program's inode, size and
# time of change: any write changes the last, and after a power cut a file may lack what was written.
# shellcheck disable=SC2154
state=$({ cat /proc/sys/kernel/random/boot_id && stat -c '%n %i %s %z' "$d"/fathom-*; } 2>/dev/null) || state=
# In one line.
# shellcheck disable=SC2086,SC2116
state=$(echo $state)
kept=
{ read -r kept <"$d"/verified; } 2>/dev/null
if [ "$state" ] && [ "$state" = "$kept" ]; then
    tail -n +2 "$d"/verified
else
    hashes=$(sha256sum "$d"/fathom-* 2>/dev/null)
    echo "$hashes"
    if [ "$state" ] && [ "$hashes" ]; then
        # A full disk keeps nothing of it.
        (umask 077 && printf '%s\n%s\n' "$state" "$hashes" >"$d"/verified-$$ && mv -f "$d"/verified-$$ "$d"/verified) 2>/dev/null ||
            rm -f "$d"/verified-$$
    fi
fi
