// MPI's return codes as exceptions.
#pragma once

namespace lockstep::mpi {

// Throws TransportError with MPI's own words unless `code` is MPI_SUCCESS.
void check(int code, const char* function);

}  // namespace lockstep::mpi
