/* GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * The loops of roles/mpi_stack/files/sweep.py in C, with the definitions of the OSU
 * micro-benchmarks; tests/bench/osu.py builds them and runs both in turns.
 * Each returns this rank's seconds of `count` iterations that follow `skip` untimed ones.
 */
#include <mpi.h>

enum { WINDOW = 64 };

double latency(MPI_Comm *comm, void *out, void *back, int size, int count, int skip)
{
    int rank;
    double begin = 0;

    MPI_Comm_rank(*comm, &rank);
    for (int i = 0; i < count + skip; i++) {
        if (i == skip)
            begin = MPI_Wtime();
        if (rank == 0) {
            MPI_Send(out, size, MPI_BYTE, 1, 1, *comm);
            MPI_Recv(back, size, MPI_BYTE, 1, 1, *comm, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(back, size, MPI_BYTE, 0, 1, *comm, MPI_STATUS_IGNORE);
            MPI_Send(out, size, MPI_BYTE, 0, 1, *comm);
        }
    }
    return MPI_Wtime() - begin;
}

double bw(MPI_Comm *comm, void *out, void *back, int size, int count, int skip)
{
    MPI_Request requests[WINDOW];
    char answer = 0;
    int rank;
    double begin = 0;

    MPI_Comm_rank(*comm, &rank);
    for (int i = 0; i < count + skip; i++) {
        if (i == skip)
            begin = MPI_Wtime();
        for (int j = 0; j < WINDOW; j++) {
            if (rank == 0)
                MPI_Isend(out, size, MPI_BYTE, 1, 100, *comm, requests + j);
            else
                MPI_Irecv(back, size, MPI_BYTE, 0, 100, *comm, requests + j);
        }
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        if (rank == 0)
            MPI_Recv(&answer, 1, MPI_BYTE, 1, 101, *comm, MPI_STATUS_IGNORE);
        else
            MPI_Send(&answer, 1, MPI_BYTE, 0, 101, *comm);
    }
    return MPI_Wtime() - begin;
}

double bibw(MPI_Comm *comm, void *out, void *back, int size, int count, int skip)
{
    MPI_Request sent[WINDOW], received[WINDOW];
    int rank;
    double begin = 0;

    MPI_Comm_rank(*comm, &rank);
    for (int i = 0; i < count + skip; i++) {
        if (i == skip)
            begin = MPI_Wtime();
        for (int j = 0; j < WINDOW; j++)
            MPI_Irecv(back, size, MPI_BYTE, 1 - rank, 101 - rank, *comm, received + j);
        for (int j = 0; j < WINDOW; j++)
            MPI_Isend(out, size, MPI_BYTE, 1 - rank, 100 + rank, *comm, sent + j);
        MPI_Waitall(WINDOW, sent, MPI_STATUSES_IGNORE);
        MPI_Waitall(WINDOW, received, MPI_STATUSES_IGNORE);
    }
    return MPI_Wtime() - begin;
}

double allreduce(MPI_Comm *comm, void *out, void *back, int size, int count, int skip)
{
    double total = 0;

    for (int i = 0; i < count + skip; i++) {
        double begin = MPI_Wtime();
        MPI_Allreduce(out, back, size / 4, MPI_FLOAT, MPI_SUM, *comm);
        double end = MPI_Wtime();
        MPI_Barrier(*comm);
        if (i >= skip)
            total += end - begin;
    }
    return total;
}

double alltoall(MPI_Comm *comm, void *out, void *back, int size, int count, int skip)
{
    double total = 0;

    for (int i = 0; i < count + skip; i++) {
        double begin = MPI_Wtime();
        MPI_Alltoall(out, size, MPI_BYTE, back, size, MPI_BYTE, *comm);
        double end = MPI_Wtime();
        MPI_Barrier(*comm);
        if (i >= skip)
            total += end - begin;
    }
    return total;
}
