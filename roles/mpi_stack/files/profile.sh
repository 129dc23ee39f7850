# Environment of MPI, for login shells, and for the orted of each node and its ranks.
# shellcheck shell=sh
if [ -r /etc/baremetal-mpi-roce/mpi.env ]; then
  set -a
  . /etc/baremetal-mpi-roce/mpi.env
  # Variables of the modulefile that is loaded here or on the host of mpirun.
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
