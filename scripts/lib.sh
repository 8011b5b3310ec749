# shellcheck shell=bash
# What the scripts share: messages, time limits, and installing a missing package.

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() {
    say "$@"
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# bounded SECONDS COMMAND…: nothing here may hang for ever. macOS has no timeout(1), but perl.
bounded() {
    if have timeout; then
        timeout -k 10 "$@"
    else
        perl -e 'alarm shift; exec @ARGV or die "$ARGV[0]: $!\n"' "$@"
    fi
}

need_cargo() {
    PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin # rustup was installed, but the shell is an old one
    have cargo || die "cargo is missing: install Rust from https://rustup.rs, then run this again"
}

as_root() {
    if [[ $(id -u) == 0 ]]; then
        "$@"
    elif have sudo; then
        sudo "$@"
    else
        die "this needs root: $*"
    fi
}

package_manager() {
    local manager
    # brew last: on Linux it is only ever a second package manager.
    for manager in apt-get dnf apk pacman zypper brew; do
        if have "$manager"; then
            echo "$manager"
            return
        fi
    done
}

# package_names MANAGER THING: what the packages are called there.
package_names() {
    case $1:$2 in
        apt-get:cc) echo gcc libc6-dev ;;
        apk:cc) echo gcc musl-dev ;;
        *:cc) echo gcc ;;
        apt-get:sqlite3 | zypper:sqlite3) echo sqlite3 ;;
        *:sqlite3) echo sqlite ;;
        apt-get:redis-server) echo redis-server ;;
        *:redis-server) echo redis ;;
        apt-get:chromium) echo chromium chromium-driver ;;
        apk:chromium) echo chromium chromium-chromedriver ;;
        dnf:chromium | zypper:chromium) echo chromium chromedriver ;;
        apt-get:faketime) echo faketime ;;
        *:faketime) echo libfaketime ;;
        pacman:rabbitmq-server | brew:rabbitmq-server) echo rabbitmq ;;
        *) echo "$2" ;;
    esac
}

# install_package THING: says what it is about to do, does it, and tries a failed download again.
install_package() {
    local manager names try
    manager=$(package_manager)
    [[ -n $manager ]] || die "$1 is missing, and there is no package manager that I know: please install it"
    read -ra names <<<"$(package_names "$manager" "$1")"
    # sudo asks for a password here, while it has the terminal; below it has not.
    [[ $(id -u) == 0 || $manager == brew ]] || as_root true
    for try in 1 2 3; do
        say "$1 is missing: installing ${names[*]} with $manager (try $try of 3)"
        # A service that the package starts must not inherit our locks (8 and 9).
        if bounded 900 "$BASH" -c "$(declare -f say die have as_root package_install); package_install \"\$@\"" \
            "$0" "$manager" "${names[@]}" </dev/null >&2 8>&- 9>&-; then
            return
        fi
        sleep "$try"
    done
    die "$manager could not install ${names[*]}: please install it by hand"
}

package_install() {
    local manager=$1
    shift
    case $manager in
        apt-get)
            # A fresh image has no package lists; a stale list names files that are gone.
            as_root apt-get -q update &&
                as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "$@"
            ;;
        dnf) as_root dnf install -y "$@" ;;
        apk) as_root apk add "$@" ;;
        pacman) as_root pacman -Sy --noconfirm --needed "$@" ;;
        zypper) as_root zypper --non-interactive install "$@" ;;
        brew) brew install "$@" ;; # refuses to run as root
    esac
}
