#!/bin/sh
# Installs Fathom @VERSION@ for Linux on x86_64 or aarch64: the program, its manual pages and its completions. Needs no root.
#
#   curl -fsSL @REPOSITORY@/releases/latest/download/install.sh | sh
#   sh install.sh --uninstall     removes it again
#
# PREFIX                where to: bin and share are below it [as root /usr/local, else ~/.local]
# FATHOM_BASE           where the archive and SHA256SUMS are, also file:///a/directory [the release's page]
# FATHOM_MINISIGN_KEY   the public key that must have signed SHA256SUMS [the release's, if it has one]
#
# Nothing is installed before the archive's checksum was right and its program has run here, and every file is renamed into place: after a
# failure, everything is as it was before.
set -eu

version=@VERSION@
repository=@REPOSITORY@
key=${FATHOM_MINISIGN_KEY:-@MINISIGN_KEY@}
# What is removed, below PREFIX.
installed="bin/fathom bin/fathom-sql share/doc/fathom share/man/man1/fathom.1 share/man/man1/fathom-*.1 \
share/bash-completion/completions/fathom share/zsh/site-functions/_fathom share/fish/vendor_completions.d/fathom.fish"

say() {
    printf '%s\n' "$*"
}

fail() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}

has() {
    command -v "$1" >/dev/null 2>&1
}

# fetch NAME: downloads a file of the release to the temporary directory.
fetch() {
    case $base in
        file://*) cp "${base#file://}/$1" "$temporary/$1" ;;
        *)
            if has curl; then
                curl -fsSL --retry 2 --connect-timeout 20 -o "$temporary/$1" "$base/$1"
            elif has wget; then
                wget -q -O "$temporary/$1" "$base/$1"
            else
                fail "downloading needs curl or wget"
            fi
            ;;
    esac || fail "cannot download $base/$1"
}

# checksum FILE: its SHA-256.
checksum() {
    if has sha256sum; then
        sha256sum "$1"
    elif has shasum; then
        shasum -a 256 "$1"
    else
        openssl dgst -r -sha256 "$1"
    fi | cut -d ' ' -f 1
}

# make_directory DIRECTORY: creates it with its parents, and notes which were created.
make_directory() {
    [ ! -d "$1" ] || return 0
    make_directory "$(dirname "$1")"
    mkdir "$1" || fail "cannot create $1"
    created="$1
$created"
}

# Removes what a run leaves: always the download, and after a failure what was written below PREFIX.
clean_up() {
    status=$?
    trap - EXIT
    [ -z "$temporary" ] || rm -rf "$temporary"
    if [ "$status" -ne 0 ]; then
        printf '%s' "$staged" | while IFS= read -r path; do rm -f "$path"; done
        printf '%s' "$created" | while IFS= read -r path; do rmdir "$path" 2>/dev/null || :; done
    fi
    exit "$status"
}

uninstall() {
    [ ! -d "$prefix" ] || (
        cd "$prefix"
        # shellcheck disable=SC2086 # Names and one pattern, separated by blanks.
        rm -rf $installed
    )
    say "fathom is removed from $prefix"
}

main() {
    if [ -z "${PREFIX:-}" ]; then
        if [ "$(id -u)" = 0 ]; then PREFIX=/usr/local; else PREFIX=${HOME:?is not set; set PREFIX}/.local; fi
    fi
    prefix=$PREFIX
    case $prefix in
        /*) ;;
        *) prefix=$PWD/$prefix ;;
    esac
    case ${1:-} in
        '') ;;
        --uninstall)
            uninstall
            return
            ;;
        *)
            say "usage: install.sh [--uninstall]" >&2
            exit 2
            ;;
    esac

    [ "$(uname -s)" = Linux ] || fail "Fathom runs on Linux, this is $(uname -s)"
    case $(uname -m) in
        x86_64 | amd64) architecture=x86_64 ;;
        aarch64 | arm64) architecture=aarch64 ;;
        *) fail "there is no Fathom for $(uname -m); it is released for x86_64 and aarch64" ;;
    esac
    # Asked before the download, not after it.
    has sha256sum || has shasum || has openssl || fail "checking the archive needs sha256sum, shasum or openssl"
    nearest=$prefix/bin
    while [ ! -e "$nearest" ]; do nearest=$(dirname "$nearest"); done
    [ -d "$nearest" ] || fail "$nearest is no directory; set PREFIX to another place"
    [ -w "$nearest" ] || fail "no permission to write to $nearest; set PREFIX to another place"

    base=${FATHOM_BASE:-$repository/releases/download/v$version}
    base=${base%/}
    staged='' created='' temporary=''
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    trap 'exit 141' PIPE
    temporary=$(mktemp -d)

    fetch SHA256SUMS
    if [ -n "$key" ] && has minisign; then
        fetch SHA256SUMS.minisig
        minisign -Vqm "$temporary/SHA256SUMS" -P "$key" || fail "the signature of $base/SHA256SUMS is wrong"
        say "signature: right"
    elif [ -n "$key" ]; then
        say "signature: not checked, minisign is not installed"
    fi
    # The archive's name ends with the C library that it is linked with.
    line=$(grep " [ *]\{0,1\}fathom-$version-$architecture-unknown-linux-[a-z]*\.tar\.gz\$" "$temporary/SHA256SUMS") ||
        fail "$base has no archive of fathom $version for $architecture"
    expected=${line%% *} archive=${line##*[ *]}
    say "downloading $base/$archive"
    fetch "$archive"
    found=$(checksum "$temporary/$archive")
    [ "$found" = "$expected" ] || fail "$archive has SHA-256 $found, but SHA256SUMS has $expected; nothing was installed"

    # As root, tar would keep the owners that the archive names.
    (cd "$temporary" && gzip -dc "$archive" | tar -xof -) || fail "cannot unpack $archive"
    unpacked=$temporary/${archive%.tar.gz}
    [ -f "$unpacked/fathom" ] || fail "$archive holds no fathom"
    mkdir -p "$unpacked/bin" "$unpacked/share/doc/fathom"
    for program in fathom fathom-sql; do
        [ ! -f "$unpacked/$program" ] || mv "$unpacked/$program" "$unpacked/bin/"
    done
    for text in "$unpacked"/*LICENSE* "$unpacked"/*.md; do
        [ ! -f "$text" ] || mv "$text" "$unpacked/share/doc/fathom/"
    done

    # Beside their final place, so that renaming is all that is left to do. The program itself comes last.
    files=$(cd "$unpacked" && find share bin -type f ! -path bin/fathom && echo bin/fathom)
    while IFS= read -r file; do
        make_directory "$(dirname "$prefix/$file")"
        new=$(dirname "$prefix/$file")/.${file##*/}.new
        staged="$staged$new
"
        cp "$unpacked/$file" "$new" || fail "cannot write $prefix/$file"
        case $file in
            bin/*) chmod 755 "$new" ;;
            *) chmod 644 "$new" ;;
        esac
    done <<END
$files
END
    runs=$("$prefix/bin/.fathom.new" --version) || fail "the program for $architecture does not run here"
    while IFS= read -r file; do
        mv -f "$(dirname "$prefix/$file")/.${file##*/}.new" "$prefix/$file" || fail "cannot write $prefix/$file"
    done <<END
$files
END

    say "$runs is installed: $prefix/bin/fathom"
    case :${PATH:-}: in
        *:"$prefix/bin":*) ;;
        *) say "It is not in PATH yet: export PATH=\"$prefix/bin:\$PATH\"" ;;
    esac
    say ""
    if [ "$(id -u)" = 0 ]; then sudo=''; else sudo='sudo '; fi
    say "  $sudo$prefix/bin/fathom demo    record 1,000 INSERTs and show where their time went"
    say "  $prefix/bin/fathom show trace.fathom    read a recording, of this or any other machine"
    say ""
    say "Recording needs root, or CAP_BPF and CAP_PERFMON; reading needs neither."
    say "Uninstall: cd $prefix && rm -rf $installed"
}

# All of it was read before the first command runs, even from a pipe that breaks.
main "$@"
