// Streams and events.

#include <memory>

#include "runtime.hpp"

namespace lockstep::cudart {
namespace {

using devices::EventRef;
using devices::Progress;
using devices::StreamRef;
using devices::Work;

// A function of the program, in the order of a stream.
class HostFunction : public Work {
 public:
  HostFunction(cudaHostFn_t function, void* data) : function_(function), data_(data) {}
  Progress advance() override {
    function_(data_);
    return Progress::done;
  }
  bool tells_host() const override { return true; }

 private:
  cudaHostFn_t function_;
  void* data_;
};

class Callback : public Work {
 public:
  Callback(cudaStreamCallback_t function, cudaStream_t stream, void* data)
      : function_(function), stream_(stream), data_(data) {}
  Progress advance() override {
    function_(stream_, cudaSuccess, data_);
    return Progress::done;
  }
  bool tells_host() const override { return true; }

 private:
  cudaStreamCallback_t function_;
  cudaStream_t stream_;
  void* data_;
};

cudaError_t create(const char* function, cudaStream_t* stream, unsigned flags, int priority) {
  return api(function, [&](const Call&) {
    if (stream == nullptr || (flags != cudaStreamDefault && flags != cudaStreamNonBlocking)) {
      return cudaErrorInvalidValue;
    }
    Engine& engine = Engine::instance();
    *stream = static_cast<cudaStream_t>(
        engine.create_stream(engine.current_device(), flags == cudaStreamDefault, priority));
    return cudaSuccess;
  });
}

template <class Body>
cudaError_t on_event(const Call& call, cudaEvent_t handle, Body&& body) {
  const EventRef event = Engine::instance().find_event(handle, &call);
  return event ? body(event) : cudaErrorInvalidResourceHandle;
}

}  // namespace
}  // namespace lockstep::cudart

using namespace lockstep::cudart;

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return create("cudaStreamCreate", stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return create("cudaStreamCreateWithFlags", stream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return create("cudaStreamCreateWithPriority", stream, flags, priority);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return api("cudaStreamDestroy", [&](const Call& call) {
    return translate(Engine::instance().destroy_stream(stream, call));
  });
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  return on_stream("cudaStreamGetPriority", handle, [&](const Call&, const StreamRef& stream) {
    if (priority == nullptr) return cudaErrorInvalidValue;
    *priority = Engine::instance().info(stream).priority;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  return on_stream("cudaStreamGetFlags", handle, [&](const Call&, const StreamRef& stream) {
    if (flags == nullptr) return cudaErrorInvalidValue;
    *flags = Engine::instance().info(stream).blocking ? cudaStreamDefault : cudaStreamNonBlocking;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long* id) {
  return on_stream("cudaStreamGetId", handle, [&](const Call&, const StreamRef& stream) {
    if (id == nullptr) return cudaErrorInvalidValue;
    *id = Engine::instance().info(stream).id;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  return on_stream("cudaStreamGetDevice", handle, [&](const Call&, const StreamRef& stream) {
    if (device == nullptr) return cudaErrorInvalidValue;
    *device = Engine::instance().info(stream).device;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return on_stream("cudaStreamSynchronize", handle, [](const Call& call, const StreamRef& stream) {
    return translate(Engine::instance().synchronize(stream, call));
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return on_stream("cudaStreamQuery", handle, [](const Call&, const StreamRef& stream) {
    return translate(Engine::instance().query(stream));
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
  return on_stream("cudaStreamWaitEvent", handle, [&](const Call& call, const StreamRef& stream) {
    if (flags != cudaEventWaitDefault) return cudaErrorInvalidValue;
    return on_event(call, event, [&](const EventRef& found) {
      return translate(Engine::instance().wait_for(stream, found, call));
    });
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return on_stream("cudaLaunchHostFunc", handle, [&](const Call& call, const StreamRef& stream) {
    if (function == nullptr) return cudaErrorInvalidValue;
    return translate(Engine::instance()
                         .enqueue(stream, call, {}, std::make_unique<HostFunction>(function, data))
                         .status);
  });
}

cudaError_t cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t function, void* data,
                                  unsigned flags) {
  return on_stream("cudaStreamAddCallback", handle, [&](const Call& call, const StreamRef& stream) {
    if (function == nullptr || flags != 0) return cudaErrorInvalidValue;
    return translate(
        Engine::instance()
            .enqueue(stream, call, {}, std::make_unique<Callback>(function, handle, data))
            .status);
  });
}

// --- capturing work into graphs is refused, so no stream ever captures

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return on_stream("cudaStreamIsCapturing", handle, [&](const Call&, const StreamRef&) {
    if (status == nullptr) return cudaErrorInvalidValue;
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count) {
  return on_stream("cudaStreamGetCaptureInfo", handle, [&](const Call&, const StreamRef&) {
    if (status == nullptr) return cudaErrorInvalidValue;
    *status = cudaStreamCaptureStatusNone;
    if (id != nullptr) *id = 0;
    if (graph != nullptr) *graph = nullptr;
    if (dependencies != nullptr) *dependencies = nullptr;
    if (edges != nullptr) *edges = nullptr;
    if (count != nullptr) *count = 0;
    return cudaSuccess;
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return api("cudaThreadExchangeStreamCaptureMode", [&](const Call&) {
    if (mode == nullptr) return cudaErrorInvalidValue;
    thread_local cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
    std::swap(current, *mode);
    return cudaSuccess;
  });
}

// --- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return api("cudaEventCreateWithFlags", [&](const Call& call) {
    constexpr unsigned known = cudaEventBlockingSync | cudaEventDisableTiming;
    if (event == nullptr) return cudaErrorInvalidValue;
    if ((flags & cudaEventInterprocess) != 0) {
      return refuse(call.function.c_str(), "events shared between processes are not covered");
    }
    if ((flags & ~known) != 0) return cudaErrorInvalidValue;
    Engine& engine = Engine::instance();
    *event = static_cast<cudaEvent_t>(
        engine.create_event(engine.current_device(), (flags & cudaEventDisableTiming) == 0));
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return api("cudaEventDestroy", [&](const Call& call) {
    return translate(Engine::instance().destroy_event(event, call));
  });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned flags) {
  return on_stream("cudaEventRecord", handle, [&](const Call& call, const StreamRef& stream) {
    if (flags != cudaEventRecordDefault) return cudaErrorInvalidValue;
    return on_event(call, event, [&](const EventRef& found) {
      return translate(Engine::instance().record(found, stream, call));
    });
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return api("cudaEventQuery", [&](const Call& call) {
    return on_event(call, event, [](const EventRef& found) {
      return translate(Engine::instance().query(found));
    });
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return api("cudaEventSynchronize", [&](const Call& call) {
    return on_event(call, event, [&](const EventRef& found) {
      return translate(Engine::instance().synchronize(found, call));
    });
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return api("cudaEventElapsedTime", [&](const Call& call) {
    if (milliseconds == nullptr) return cudaErrorInvalidValue;
    return on_event(call, begin, [&](const EventRef& from) {
      return on_event(call, end, [&](const EventRef& to) {
        return translate(Engine::instance().elapsed(from, to, *milliseconds));
      });
    });
  });
}

}  // extern "C"
