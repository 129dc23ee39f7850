# MPI for every login shell, for the orted of each node, and so for every rank.
# shellcheck shell=sh
if [ -r /etc/baremetal-mpi-roce/mpi.env ]; then
  set -a
  . /etc/baremetal-mpi-roce/mpi.env
  # Of a modulefile, which `module load` chose here or on the host of mpirun.
  # shellcheck source=/dev/null
  [ ! -r "${MPI_ROCE_MODULE:-}" ] || . "$MPI_ROCE_MODULE"
  if [ -n "${MPI_ROCE_BIN:-}" ]; then
    case ":$PATH:" in *":$MPI_ROCE_BIN:"*) ;; *) PATH="$MPI_ROCE_BIN:$PATH" ;; esac
  fi
  if [ -n "${MPI_ROCE_LIB:-}" ]; then
    case ":${LD_LIBRARY_PATH:-}:" in
      *":$MPI_ROCE_LIB:"*) ;;
      *) LD_LIBRARY_PATH="$MPI_ROCE_LIB${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" ;;
    esac
  fi
  if [ -n "${MPI_ROCE_PYTHON:-}" ]; then
    case ":${PYTHONPATH:-}:" in
      *":$MPI_ROCE_PYTHON:"*) ;;
      *) PYTHONPATH="$MPI_ROCE_PYTHON${PYTHONPATH:+:$PYTHONPATH}" ;;
    esac
  fi
  set +a
fi
