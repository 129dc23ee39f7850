# shellcheck shell=bash
# Requirements of ./demo and ./test on this machine: checked every time, and installed if missing.
# To be sourced from the root of the checkout. Nothing here reads standard input.
#
#   bootstrap_python controller|test   .venv/ with requirements/NAME.txt, whose hashes pip checks;
#                                      ANSIBLE_CORE=2.20 takes the newest ansible-core of that series
#                                      instead of the locked one, without checking hashes
#   bootstrap_apt FILE...              the Debian packages listed in requirements/FILE
#   require_root                       root, or sudo without a password

readonly PYTHON_OLDEST=3.11
readonly VENV=.venv

say() { printf '%s\n' "$*" >&2; }

# missing REQUIREMENT REMEDY...: name the missing requirement and its remedy, and stop.
missing() {
  local requirement=$1
  shift
  say ""
  say "Cannot continue. Missing: $requirement"
  say "Remedy: $*"
  exit 3
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

can_be_root() {
  [ "$(id -u)" -eq 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }
}

# Print name and version of this system, as in os-release: `debian 12`.
system_name() {
  # shellcheck disable=SC1090,SC1091
  (. "${OS_RELEASE:-/etc/os-release}" 2>/dev/null && echo "${ID:-unknown} ${VERSION_ID:-}") || echo unknown
}

wanted_packages() {
  local file
  for file in "$@"; do sed 's/#.*//' "requirements/$file"; done | tr -s '[:space:]' '\n' | sort -u | sed '/^$/d'
}

missing_packages() {
  local package
  for package in $(wanted_packages "$@"); do
    # shellcheck disable=SC2016
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
  done
}

bootstrap_apt() {
  local packages
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    missing "a Debian or Ubuntu system (this one is: $(system_name))" \
      "use Debian 12 or Ubuntu 24.04, on which this is tested. Packages to be installed:" \
      "$(wanted_packages "$@" | paste -sd ' ')"
  fi
  packages=$(missing_packages "$@" | paste -sd ' ')
  [ -n "$packages" ] || return 0
  can_be_root || missing "root, or sudo without a password, to install: $packages" \
    "run this as root (sudo $0), or ask an administrator to run: apt-get install $packages"
  say "Installing Debian packages: $packages"
  # shellcheck disable=SC2086
  if ! apt_install $packages; then
    say "The package lists may be outdated: updating them and trying again."
    as_root apt-get -qq -o DPkg::Lock::Timeout=120 update </dev/null >&2 ||
      missing "a reachable package registry" "see the output of apt-get above; its address is in /etc/apt"
    # shellcheck disable=SC2086
    apt_install $packages ||
      missing "packages: $(missing_packages "$@" | paste -sd ' ')" \
        "see the output of apt-get above; tested on Debian 12 and Ubuntu 24.04, this is $(system_name)"
  fi
}

# Packages of which tests only need the programs. Their service would listen on every address.
readonly ONLY_PROGRAMS="prometheus"

apt_install() {
  local log package unit
  for package in $ONLY_PROGRAMS; do
    unit=/etc/systemd/system/$package.service
    case " $* " in *" $package "*) [ -e "$unit" ] || as_root ln -sfn /dev/null "$unit" ;; esac
  done
  log=$(mktemp)
  if as_root env DEBIAN_FRONTEND=noninteractive apt-get -y -qq -o DPkg::Lock::Timeout=120 \
    install --no-install-recommends "$@" </dev/null >"$log" 2>&1; then
    rm -f "$log"
    return 0
  fi
  tail -n 15 "$log" >&2
  rm -f "$log"
  return 1
}

# Find a Python that can create a venv: the caller's choice first, then the system's. Distributions
# build Python with profiles, which makes runs a fifth faster.
find_python() {
  local candidate
  for candidate in "${PYTHON:-/usr/bin/python3}" python3 python3.13 python3.12 python3.11; do
    "$candidate" - "$PYTHON_OLDEST" 2>/dev/null <<'PY' && { command -v "$candidate"; return 0; }
import ensurepip, sys, venv
oldest = tuple(int(part) for part in sys.argv[1].split("."))
sys.exit(sys.version_info[:2] < oldest)
PY
  done
  return 1
}

pip_install() {
  "$VENV/bin/python" -m pip install --quiet --quiet --disable-pip-version-check --no-input "$@" </dev/null >&2 ||
    missing "Python packages: $*" "see the output of pip above; the index is in pip's configuration"
}

bootstrap_python() {
  local set=$1 python want stamp="$VENV/.requirements-$1"
  want=$({ cat requirements/*.txt; echo "${ANSIBLE_CORE-}"; } | sha256sum)
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && "$VENV/bin/python" -c '' 2>/dev/null; then
    return 0
  fi
  if ! "$VENV/bin/python" -c 'import pip' 2>/dev/null; then
    python=$(find_python) || missing "Python $PYTHON_OLDEST or later with its venv module \
(python3 here is $(python3 -V 2>&1))" "install python3 $PYTHON_OLDEST or later, or name one: PYTHON=/path/to/python3 $0"
    say "Creating $VENV with $python ($("$python" -V 2>&1))"
    "$python" -m venv --clear "$VENV"
  fi
  say "Installing into $VENV/: requirements/$set.txt${ANSIBLE_CORE:+, then ansible-core $ANSIBLE_CORE}"
  # Wheels only: the requirements of source builds have no hashes.
  pip_install --require-hashes --only-binary :all: -r "requirements/$set.txt"
  [ -z "${ANSIBLE_CORE-}" ] || pip_install "ansible-core==$ANSIBLE_CORE.*" # pip accepts only one of the two options
  printf '%s\n' "$want" >"$stamp"
}

# Virtual nodes are containers in network namespaces, which need root. The role virtual_nodes checks
# the other requirements (namespaces, bridges, memory).
require_root() {
  can_be_root || missing "root, or sudo without a password" \
    "run: sudo $0 (virtual nodes need network namespaces and bridges)"
}
