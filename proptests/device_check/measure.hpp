// What one process with one device can tell about it. Each prints a line or a few, and returns an
// exit status.
#pragma once

namespace lockstep::device_check {

// The device, its driver, and the versions of the libraries.
int describe_device();
// The bits of sums on the device against those of the host, under both rules, for every dtype.
// `elements` of each of 8 addends.
int check_sums(long elements);
// How fast sums on the device are, against a copy on the device.
int measure_sums(long elements);
// What a call costs over the bare call of NCCL, in a world of one.
int measure_overhead();

}  // namespace lockstep::device_check
