# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""POSIX shell that runs on nodes and on the launcher, each script with positional arguments.

The scripts are Python strings because Ansible ships only Python files with a module;
tests/unit/test_shell_scripts.py runs shellcheck on every string that starts with `#!/bin/sh`.
Each line of an answer starts with `mpi-ready`, because login files may print lines as well
(`hosts.report`).
"""

LIMITS = r"""#!/bin/sh
# Report the limits of a process on the launcher, by subjects of readiness.limits. A shell whose
# ulimit lacks an option reports nothing.
# shellcheck disable=SC3045
report() { echo "mpi-ready $*"; }
report files "$(ulimit -n)"
report processes "$(ulimit -u 2>/dev/null)"
group=$(sed -n 's/^0:://p' /proc/self/cgroup)
while :; do
  if [ -r "/sys/fs/cgroup$group/pids.max" ]; then
    report processes "$(cat "/sys/fs/cgroup$group/pids.max")"
  fi
  case $group in */*) group=${group%/*} ;; *) break ;; esac
done
report processes "$(cat /proc/sys/kernel/threads-max)"
"""

READY = r"""#!/bin/sh
# Report what readiness.Answer holds. $1 program, $2 nccl-tests, $3 daemon, $4 Python that opens
# connections, $5 port on the launcher, $6 names of the peer; then the rails.
program=$1 nccl=$2 daemon=$3 call=$4 port=$5 peers=$6
shift 6
report() { echo "mpi-ready $*"; }
sum() { if [ -r "$1" ]; then sha256sum < "$1" | cut -d' ' -f1; else echo missing; fi; }
report program "$(sum "$program")"
profile=/etc/profile.d/baremetal-mpi-roce.sh
# shellcheck source=/dev/null
if [ -r "$profile" ]; then . "$profile"; fi
if command -v "$daemon" >/dev/null; then report daemon yes; else report daemon no; fi
version=$(mpirun --version 2>/dev/null | sed -n '1s/^\(mpirun \)\{0,1\}//p')
report version "$version${OPAL_PREFIX:+ in $OPAL_PREFIX}${I_MPI_ROOT:+ in $I_MPI_ROOT}"
report ucx "$(ucx_info -v 2>/dev/null | sed -n 's/^# *\(Library v\|V\)ersion:\{0,1\} *//p')"
for rail in "$@"; do
  state=$(cat "/sys/class/net/$rail/operstate" 2>/dev/null || echo missing)
  case $state in up | unknown) ;; *) report rail "$rail" "$state" ;; esac
done
# The daemon of mpirun connects to the launcher, where a port listens. Ranks connect to each other:
# a port without a listener answers with a refusal. Names come from /etc/hosts only, because a name
# server may be down.
case ${SSH_CONNECTION:-} in
  *:* | '') calls= ;; # IPv6, which no network of the model uses
  *) calls=${SSH_CONNECTION%% *}; report launcher "$calls" ;;
esac
for peer in $peers; do
  address=$(getent -s files ahostsv4 "$peer" 2>/dev/null | sed -n '1s/ .*//p')
  if [ -n "$address" ]; then report peer "$peer" "$address"; calls="$calls $address"; fi
done
if [ -n "$calls" ]; then
  # shellcheck disable=SC2086
  /usr/bin/python3 -ISc "$call" "$port" $calls 2>/dev/null | sed -n 's/^mpi-back /mpi-ready back /p'
fi
gpus=0
for device in /dev/nvidia[0-9]*; do if [ -e "$device" ]; then gpus=$((gpus + 1)); fi; done
report gpus "$gpus"
if [ "$gpus" -gt 0 ]; then
  case ",${UCX_TLS:-}," in *,cuda_copy,*) report cuda UCX ;; esac
  if ompi_info --parsable --all 2>/dev/null | grep -q mpi_built_with_cuda_support:value:true; then
    report cuda Open MPI
  fi
  if command -v "$nccl" >/dev/null; then report nccl yes; fi
fi
if cd /sys/class/infiniband 2>/dev/null; then
  grep -sH . ./*/ports/*/gid_attrs/ndevs/* |
    sed -n 's|^\./\([^/]*\)/ports/\([^/]*\)/[^:]*:\(.*\)$|mpi-ready device \1:\2 \3|p' | sort -u
  grep -sH . ./*/ports/*/state |
    sed -n 's|^\./\([^/]*\)/ports/\([^/]*\)/state:[0-9]*: *\(.*\)$|mpi-ready port \1:\2 \3|p'
  for device in *; do
    if [ -d "$device/ports" ] && [ ! -e "$device/device" ]; then report software "$device"; fi
  done
fi
# Ranks of a job keep session files and shared memory here, and a killed job leaves them behind.
for directory in /tmp /dev/shm; do
  report space "$directory" "$(stat -f -c '%a %S %d %c' "$directory" 2>/dev/null)"
done
report end
"""

SWEEP = r"""#!/bin/sh
# Kill the processes of the MPI user that have run id $1 in their command line or environment, after
# a second for those that are exiting. The command line of this script is base64 (hosts.remote).
id=$1
# Every process of the user contains an empty id: fewer than 12 digits kill nothing.
if [ "$(printf '%s' "$id" | tr -cd '0-9a-f' | wc -c)" -lt 12 ]; then
  echo "no run id: no process was searched for" >&2
  exit 2
fi
pids() {
  # shellcheck disable=SC2062
  printf '%s\n' "$id" | grep -lsaF -f - /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null |
    cut -d/ -f3 | sort -u | while read -r pid; do
      # shellcheck disable=SC3067
      if [ -O "/proc/$pid" ]; then echo "$pid"; fi
    done
}
tries=0
while [ -n "$(pids)" ] && [ "$tries" -lt 5 ]; do sleep 0.2; tries=$((tries + 1)); done
killed=$(pids | wc -l)
tries=0
while [ -n "$(pids)" ] && [ "$tries" -lt 10 ]; do
  # shellcheck disable=SC2046
  kill -KILL $(pids) 2>/dev/null
  sleep 0.1
  tries=$((tries + 1))
done
echo "mpi-ready killed $killed left $(pids | wc -l)"
"""

JOB_READY = r"""#!/bin/sh
# Report why this node cannot run a job. $1 work directory, $2 program, $3 script of an interpreter,
# $4 script on shared file systems and $5 its argument, $6 PATH of the job.
profile=/etc/profile.d/baremetal-mpi-roce.sh
# shellcheck source=/dev/null
if [ -r "$profile" ]; then . "$profile"; fi
cd "$1" 2>/dev/null || echo "mpi-ready problem directory $1 not found"
(PATH=${6:-$PATH}; command -v -- "$2" >/dev/null) ||
  echo "mpi-ready problem program $2 not found${6:+ in PATH $6, that of mpi_job_environment}"
[ -z "$3" ] || [ -r "$3" ] || echo "mpi-ready problem program $3 not found"
for id in $(pgrep -x 'orted|prted|mpirun|prterun|hydra_pmi_proxy'); do
  line=$(ps -wwo user=,args= -p "$id")
  case $line in *' ess_base_nspace prte-'*) continue ;; esac # a DVM, which waits for jobs
  printf 'mpi-ready problem another MPI job runs: %s %.80s\n' "$id" "$line"
done
if command -v nvidia-smi >/dev/null; then
  ids=$(nvidia-smi --query-compute-apps=pid --format=csv,noheader 2>/dev/null | tr '\n' ' ')
  [ -z "$ids" ] || echo "mpi-ready problem GPUs are in use by process $ids"
fi
timeout -s KILL 20 sh -c "$4" sh "$5" ||
  [ $? -lt 128 ] || echo "mpi-ready problem shared file systems do not answer within 20 s"
echo mpi-ready end
"""

STORAGE = r"""#!/bin/sh
# Check that shared file systems are mounted, and that $1, or else the checkpoints', can be written.
asked=$1
for name in CLUSTER_CHECKPOINT_DIR CLUSTER_DATASETS_DIR; do
  eval "mount=\${$name:-}"
  echo "mpi-ready storage $name=$mount"
  if [ -z "$mount" ] || { said=$(stat "$mount/." 2>&1 >/dev/null) && mountpoint -q "$mount"; }; then
    [ "$name" = CLUSTER_DATASETS_DIR ] || asked=${asked:-$mount}
  elif [ -e /run/systemd/container ]; then
    echo "mpi-ready container $mount"
  else
    said="${said:+ (${said##*: })}"
    echo "mpi-ready problem $name: $mount is not mounted$said; run --tags storage"
  fi
done
[ -n "$asked" ] || exit 0
if [ ! -e "$asked" ]; then asked=$(dirname "$asked"); fi
if said=$({
  file=$(mktemp "$asked/.mpi-job-XXXXXX") && trap 'rm -f "$file"' EXIT &&
    head -c 4096 /dev/zero >"$file" && sync "$file" && stat -c %Y "$file"
} 2>&1); then
  echo "mpi-ready written $said $(df -Pk "$asked" | awk 'NR == 2 {print $4}')"
else
  echo "mpi-ready problem no checkpoints can be written to $asked: ${said##*: }"
fi
exit 0
"""

NEWEST = r"""#!/bin/sh
# Report the newest file below $1, and the current time. Programs write a hidden file first and then
# rename it, so hidden files do not count.
echo "mpi-ready now $(date +%s.%N)"
format='mpi-ready newest %T@ %s %p\n'
newline='
'
timeout -s KILL 30 \
  find "$1" -type f ! -name '.*' ! -path "*$newline*" -printf "$format" 2>/dev/null |
  sort -k 3 -n | tail -n 1
"""

TIDY = r"""#!/bin/sh
# Run the Python program $1 (LEFTOVERS) with the other arguments, unless another MPI job runs.
program=$1
shift
pgrep -u "$(id -u)" -x 'orted|prted|mpirun|prterun|hydra_pmi_proxy' >/dev/null
[ $? = 1 ] || exit 0
timeout -s KILL 30 /usr/bin/python3 -ISc "$program" "$@"
exit 0
"""

LEFTOVERS = r"""
# Remove session directories and shared memory of killed ranks. Arguments: seconds since the job
# began, then /dev/shm, /proc and /tmp. NCCL, PyTorch, CUDA, PSM and Python use different names in
# /dev/shm, so every file there that was written since then and is not in use is removed: the kernel
# grants a lease only on a file that no process of any user has open or mapped. /proc hides the
# processes of other users, and a file may be opened after it was checked. Files that were copied
# with their time, or renamed, are older and stay. An unexpected error leaves everything in place.
import fcntl, os, re, shutil, signal, stat, sys, time
since, (shm, proc, tmp) = float(sys.argv[1]), sys.argv[2:]
begin, of_mpi = time.time() - since, ("vader_segment.", "sm_segment.", "ucx_shm_")
session = rf"(ompi|prte|prted|prterun|mpirun)\.[^ ]+\.{os.getuid()}"
rank = rb"(^|\0)(OMPI_COMM_WORLD_RANK|PMIX_RANK|PMI_RANK|SLURM_PROCID|LOCAL_RANK)="

def environ(pid):
    try:
        with open(f"{proc}/{pid}/environ", "rb") as file:
            return file.read()
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return b""

def mine(folder):
    for entry in os.scandir(folder):
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        if status.st_uid == os.getuid() and re.fullmatch("[ -~]+", entry.name):
            yield entry, status

other = any(re.search(rank, environ(pid)) for pid in os.listdir(proc) if pid.isdigit())
for entry, _status in [] if other else mine(tmp):
    if re.fullmatch(session, entry.name) and entry.is_dir(follow_symlinks=False):
        shutil.rmtree(entry, ignore_errors=True)
        print("mpi-ready removed", entry.path)
signal.signal(signal.SIGIO, signal.SIG_IGN)  # sent when a process wants to open a leased file
for entry, status in mine(shm):
    newer = not other and min(status.st_ctime, status.st_mtime) > begin
    ours = entry.name.startswith(of_mpi) or newer
    if not ours or not stat.S_ISREG(status.st_mode):
        continue
    try:
        file = os.open(entry.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        continue
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        os.unlink(entry.path)
        print("mpi-ready removed", entry.path)
    except OSError:
        pass
    finally:
        os.close(file)
"""
