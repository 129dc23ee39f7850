# shellcheck shell=sh
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
#
# Functions that run on a SONiC switch: apply patches under a rollback timer, confirm them or go back.
# They are sent with each command, joined into one line (`switch.py`). A timer runs the same text, as
# a transient unit of systemd: write no braces around variables, which systemd would expand, and no `$$`.
# The name of the command that applies a patch appears only in the bracketed pattern below: `pgrep` would
# find this text itself.
#
# The driver sets: name (prefix of checkpoints, `$name-NNN`, and units, `$name-KIND`), owner (description
# of the units), script (this text), saved_file, config_saved (`yes` if going back must restore that file
# too), call_s (longest time of one command line), rollback_s (limit of one `config rollback`), ignored
# (its options), interval_checkpoints (taken before `pfcwd interval` added a row).
#
# shellcheck disable=SC2154

TOO_LATE=75  # the timer has rolled back
NOT_SAVED=76 # `config save` failed
GONE=77      # no checkpoint to go back to

# Read patches, one per line, into $f and $f.1 to $f.COUNT. They are on disk only while they are applied.
read_patches() {
    umask 077
    f=$(mktemp /tmp/baremetal-mpi-roce.XXXXXX) || exit
    trap 'rm -f "$f" "$f".*' EXIT
    trap 'exit 129' HUP INT TERM
    cat > "$f" || exit
    for number in $(seq "$1"); do
        sed -n "$number"p "$f" > "$f.$number" || exit
    done
}

# `config` fails if it cannot print, for example after the connection is cut.
quiet() {
    exec > /dev/null
}

# Take a checkpoint. A failed one is removed: on a full disk it is empty, and cannot be restored.
take() {
    config checkpoint "$name-$1" && return
    config delete-checkpoint "$name-$1" 2> /dev/null
    exit 1
}

# arm KIND SECONDS: roll back after SECONDS, once the patch that is being applied has finished.
arm() {
    systemd-run --quiet --on-active="$2"s --timer-property=AccuracySec=1s --unit="$name-$1" \
        --description="$owner" /bin/sh -c "$script wait_for_patch; back"
}

# False if the timer has expired: it is active as well while its service runs.
disarm() {
    systemctl stop "$name-$1.timer" && not_undoing "$1"
}

is_active() {
    systemctl is-active --quiet "$name-$1.timer" && not_undoing "$1"
}

not_undoing() {
    ! systemctl is-active --quiet "$name-$1.service"
}

guarded_by() {
    is_active "$1" || exit "$TOO_LATE"
}

wait_for_patch() {
    waited=0
    while pgrep -f '[c]onfig apply-patch' > /dev/null && [ "$waited" -lt "$call_s" ]; do
        sleep 1
        waited=$((waited + 1))
    done
}

# Roll back from checkpoint to checkpoint, the last one first: going back to the first directly would
# be one sort of the whole change. Each checkpoint is deleted afterwards, so that this can be
# interrupted and repeated. `config rollback` prints the patch, with changes of others in it.
undo() {
    names=$(config list-checkpoints) || return
    case "$names" in
        *"\"$name-000\""*) ;;
        *) return "$GONE" ;;
    esac
    for checkpoint in $(echo "$names" | grep -o "$name-[0-9]*" | sort -r); do
        # `config rollback` must not remove that row while the rest of its table stays.
        case " $interval_checkpoints " in
            *" $checkpoint "*) sonic-db-cli CONFIG_DB DEL 'PFC_WD|GLOBAL' ;;
        esac
        # shellcheck disable=SC2086
        timeout "$rollback_s" config rollback "$checkpoint" $ignored > /dev/null || return
        [ "$checkpoint" = "$name-000" ] || config delete-checkpoint "$checkpoint" || return
    done
}

back() {
    undo || return
    [ "$config_saved" != yes ] || save || return
    config delete-checkpoint "$name-000"
}

# Save the running configuration. On failure the saved file is as before.
save() {
    backup="$saved_file.baremetal-mpi-roce-backup"
    rm -f "$backup"
    [ ! -e "$saved_file" ] || cp -p "$saved_file" "$backup" || return
    if config save -y && python3 -m json.tool "$saved_file" > /dev/null; then
        rm -f "$backup"
    else
        [ ! -e "$backup" ] || mv -f "$backup" "$saved_file"
        return 1
    fi
}

# confirm SECONDS: stop the timer and save. If saving fails, roll back after SECONDS.
confirm() {
    { is_active confirm && disarm confirm; } || exit "$TOO_LATE"
    save && return
    arm unsaved "$1"
    exit "$NOT_SAVED"
}

# go_back SECONDS: undo now, or wait for a timer that is undoing. On failure try again after SECONDS.
go_back() {
    quiet
    wait_for_patch
    for kind in applying applying-next confirm unsaved again; do
        systemctl stop "$name-$kind.timer" 2> /dev/null
        while systemctl is-active --quiet "$name-$kind.service"; do
            sleep 1
        done
    done
    (back) && return
    status=$?
    [ "$status" = "$GONE" ] || arm again "$1"
    exit "$status"
}

forget_checkpoints() {
    for checkpoint in $(config list-checkpoints | grep -o "$name-[0-9]*"); do
        config delete-checkpoint "$checkpoint"
    done
}
