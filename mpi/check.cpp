#include "check.hpp"

#include <string>

#include <lockstep/error.hpp>
#include <lockstep/mpi/c_api.hpp>

namespace lockstep::mpi {

void check(int code, const char* function) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  throw TransportError(std::string(function) + " failed: " +
                           (length > 0 ? std::string(text, static_cast<std::size_t>(length))
                                       : "code " + std::to_string(code)),
                       {});
}

}  // namespace lockstep::mpi
