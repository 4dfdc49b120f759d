"""Messages in the words of several releases: the codes that may be named first, and the text."""

from __future__ import annotations

from support.logs.builder import traceback

VARIANTS = [
    # what verl asks of vLLM
    (
        "VLLM102",
        "ImportError: cannot import name 'Fp8LinearOp' from 'vllm.model_executor.layers.quantization.utils.w8a8_utils' (/usr/local/lib/python3.12/dist-packages/vllm/model_executor/layers/quantization/utils/w8a8_utils.py)",
    ),
    ("VLLM102", "ModuleNotFoundError: No module named 'vllm.utils.argparse_utils'"),
    (
        "VLLM102",
        "ImportError: cannot import name 'FlexibleArgumentParser' from 'vllm.utils' (/x/vllm/utils/__init__.py)",
    ),
    ("VLLM102", "ModuleNotFoundError: No module named 'vllm.lora.models'"),
    ("VLLM102", "ModuleNotFoundError: No module named 'vllm.model_executor.sampling_metadata'"),
    ("VLLM102", "AttributeError: module 'vllm.envs' has no attribute 'VLLM_USE_RAY_SPMD_WORKER'"),
    (
        "VLLM103 VLLM101",
        "TypeError: AsyncEngineArgs.__init__() got an unexpected keyword argument 'swap_space'",
    ),
    ("VLLM103", "TypeError: Unexpected keyword argument 'guided_decoding' SamplingParams"),
    (
        "CUDA110",
        "ImportError: /x/transformer_engine_torch.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZNK3c106SymInt22maybe_as_int_slow_pathEv",
    ),
    (
        "CUDA110",
        "ImportError: /x/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so: undefined symbol: _ZN5torch3jit17parseSchemaOrNameERKSsb",
    ),
    (
        "CUDA110",
        "OSError: /x/torchaudio/lib/libtorchaudio.so: undefined symbol: _ZN2at4_ops5zeros4callEN3c108ArrayRefINS2_6SymIntEEE",
    ),
    (
        "CUDA110",
        "ImportError: /x/sgl_kernel/common_ops.abi3.so: undefined symbol: _ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb",
    ),
    (
        "API101",
        "RuntimeError: Failed to import verl.utils.model because of the following error: cannot import name 'AutoModelForVision2Seq' from 'transformers'",
    ),
    (
        "LOAD102",
        "ValueError: Unrecognized configuration class <class 'transformers.models.qwen3_vl.configuration_qwen3_vl.Qwen3VLConfig'> for this kind of AutoModel: AutoModelForCausalLM.",
    ),
    (
        "LOAD102",
        "ValueError: The checkpoint you are trying to load has model type `gemma4` but Transformers does not recognize this architecture.",
    ),
    ("VLLM112", "AttributeError: TokenizersBackend has no attribute all_special_tokens_extended"),
    ("LOAD102", "ValueError: Tokenizer class TokenizersBackend does not exist or is not currently imported."),
    (
        "CUDA114",
        "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.\nCUDA kernel errors might be asynchronously reported at some other API call",
    ),
    (
        "CUDA114",
        "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\nptxas fatal   : Unsupported .version 8.7; current version is '8.4'",
    ),
    (
        "CUDA114",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error? Error 804: forward compatibility was attempted on non supported HW",
    ),
    ("CUDA111", "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory"),
    ("CUDA111", "ImportError: libcusparseLt.so.0: cannot open shared object file: No such file or directory"),
    ("CUDA111", "OSError: libmpi.so.40: cannot open shared object file: No such file or directory"),
    (
        "CUDA103",
        "RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu. Error 803: system has unsupported display driver / cuda driver combination",
    ),
    (
        "CUDA115",
        "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device\nSearch for `cudaErrorNoKernelImageForDevice'",
    ),
    (
        "CUDA115",
        "UserWarning: NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.\nRuntimeError: CUDA error: no kernel image is available for execution on the device",
    ),
    ("PKG101 CUDA110 CUDA111", "AttributeError: '_OpNamespace' '_C' object has no attribute 'silu_and_mul'"),
    (
        "PKG101",
        "ImportError: cannot import name 'ForkingPickler' from 'torch.multiprocessing.reductions' (/x/torch/multiprocessing/reductions.py)",
    ),
    (
        "DATA103",
        "ValueError: Feature type 'List' not found. Available feature types: ['Value', 'ClassLabel', 'Translation', 'Sequence']",
    ),
    (
        "PKG101",
        "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88 from PyObject",
    ),
    (
        "PKG101",
        "TypeError: Descriptors cannot be created directly.\nIf this call came from a _pb2.py file, your generated code is out of date",
    ),
    (
        "API101",
        "ImportError: cannot import name 'ImageData' from 'sglang.srt.utils' (/x/sglang/srt/utils.py)",
    ),
    (
        "CUDA157 LOG103",
        "[torch_memory_saver.cpp] CUresult error  result=2 file=csrc/torch_memory_saver.cpp func=cu_mem_create line=103",
    ),
    ("LOG101", "ModuleNotFoundError: No module named 'megatron.bridge'"),
    (
        "ENV114",
        "AssertionError: Using tensor model parallelism or context parallelism require setting the environment variable CUDA_DEVICE_MAX_CONNECTIONS to 1",
    ),
    (
        "CUDA105",
        "/usr/bin/ld: cannot find -lcuda\ncollect2: error: ld returned 1 exit status\n"
        + traceback(
            "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/tmpx/main.c', '-O3', '-lcuda', '-I/usr/include/python3.10']' returned non-zero exit status 1."
        ),
    ),
    (
        "CUDA105",
        "/x/conda/bin/../lib/gcc/x86_64-conda-linux-gnu/ld: cannot find -lcuda: No such file or directory",
    ),
    ("CUDA106", "RuntimeError: Failed to find C compiler. Please specify via CC environment variable."),
    (
        "CUDA107 CUDA108",
        "/tmp/tmpab/cuda_utils.c:6:10: fatal error: Python.h: No such file or directory\n    6 | #include <Python.h>\ncompilation terminated.\n"
        + traceback(
            "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/tmpab/cuda_utils.c']' returned non-zero exit status 1."
        ),
    ),
    ("CUDA132", "FileNotFoundError: [Errno 2] No such file or directory: '/usr/local/cuda/bin/nvcc'"),
    (
        "CUDA132 CUDA133",
        "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist",
    ),
    (
        "CUDA132",
        "RuntimeError: Ninja build failed. Ninja output:\nninja: Entering directory `/home/u/.cache/flashinfer/90a/cached_ops'\n/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found",
    ),
    (
        "ATT102",
        "ValueError: Backend TORCH_SDPA must be registered before use. Use register_backend(Backend.TORCH_SDPA, 'your.module.YourClass')",
    ),
    ("ATT101", "ValueError: Invalid attention backend for cuda: XFORMERS"),
    ("ATT104", "RuntimeError: FlashAttention forward only supports head dimension at most 256"),
    (
        "HOST110",
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\nMemory on the node (IP: 10.0.0.1, ID: ab) where the task was running was 250.04GB / 251.54GB (0.994), which exceeds the memory usage threshold of 0.95.",
    ),
    (
        "HOST110",
        "(raylet) [2025-09-01 10:00:00,000 E 10 10] (raylet) node_manager.cc:3041: 3 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID: ab, IP: 10.0.0.1) over the last time period.",
    ),
    (
        "HOST114",
        "[  999.1] Memory cgroup out of memory: Killed process 31337 (ray::WorkerDict) total-vm:9kB, anon-rss:1kB",
    ),
    ("HOST102", "libgomp: Thread creation failed: Resource temporarily unavailable"),
    (
        "HOST102",
        "terminate called after throwing an instance of 'boost::wrapexcept<boost::system::system_error>'\n  what():  thread: Resource temporarily unavailable [system:11]",
    ),
    (
        "HOST102",
        "[2025-05-01 10:00:00,000 E 1 1] logging.cc:115: Stack trace: boost thread: Resource temporarily unavailable [system:11]",
    ),
    (
        "HOST117 HOST101 HOST102",
        "[2025-10-31 11:59:10,379 E 90821 90821] core_worker.cc:513: Failed to register worker to Raylet: IOError: [RayletClient] Unable to register worker with raylet. Failed to read data from the socket: End of file worker_id=01000000ffff",
    ),
    (
        "NET114",
        "RuntimeError: The server socket has failed to listen on any local network address. The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
    ),
    (
        "NET114",
        "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
    ),
    (
        "CUDA141",
        "ValueError: Free memory on device cuda:0 (111.99/139.8 GiB) on startup is less than desired GPU memory utilization (0.95, 132.81 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
    ),
    (
        "CUDA141",
        "AssertionError: Error in memory profiling. Initial free memory 30 GiB, current free memory 31 GiB. This happens when other processes sharing the same container release GPU memory while vLLM is profiling during initialization.",
    ),
    ("CUDA157", "RuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62"),
    ("CUDA157", "RuntimeError: CUDA Error: invalid argument at /workspace/csrc/cumem_allocator.cpp:119"),
    (
        "CUDA157 LOG110",
        "RuntimeError: Call to wake_up method failed: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:163",
    ),
    (
        "ENV115",
        "AssertionError: Expandable segments are not compatible with memory pool. Please track https://github.com/pytorch/pytorch/issues/147851 for the latest updates.",
    ),
    (
        "LOG110",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 18.55 GiB. GPU 3 has a total capacity of 79.33 GiB of which 11.47 GiB is free. Process 1 has 67 GiB memory in use. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
    ),
    (
        "RAY104 RAY105",
        "RuntimeError: Version mismatch: The cluster was started with:\n    Ray: 2.49.2\n    Python: 3.10.12\nThis process on node 10.0.0.9 was started with:\n    Ray: 2.49.2\n    Python: 3.12.3",
    ),
    (
        "RAY110",
        "AssertionError: Session name b'session_2025-01-01_1' does not match persisted value b'session_2024-12-31_2'. Perhaps there was an error connecting to Redis.",
    ),
    (
        "RAY121 RAY120",
        "AssertionError: instance_id: 7f:wg:2:0 has 0 actors, but vllm_dp_size: 2 * vllm_tp_size: 1 = 2 is expected.",
    ),
    (
        "RAY128 RAY126",
        "AssertionError: failed to get register_center_actor: xYzWorkerDict_register_center in ['abc']",
    ),
    ("RAY111", "ValueError: Total available GPUs 7.0 is less than total desired GPUs 8"),
    (
        "RAY111",
        "ValueError: The number of required GPUs exceeds the total number of available GPUs in the cluster.",
    ),
    (
        "CUDA152",
        "RuntimeError: CUDA error: invalid device ordinal\nCUDA kernel errors might be asynchronously reported at some other API call",
    ),
    (
        "CUDA153",
        "ValueError: Please use the same HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES, inconsistant values found: 0,1 and 0",
    ),
    ("HOST103", "OSError: [Errno 24] Too many open files"),
    ("HOST106", "OSError: [Errno 28] No space left on device: '/tmp/ray/session_x/runtime_resources'"),
    (
        "HOST108",
        "OSError: AF_UNIX path length cannot exceed 107 bytes: '/home/very/long/ray/session_2025/sockets/plasma_store'",
    ),
    ("HOST107", "Could not connect to socket /shared/tmp/ray/session_2025-01-01/sockets/raylet.1"),
    ("RAY130", "RuntimeError: Request failed with status code 413: Request Entity Too Large."),
    (
        "RAY130",
        "ray.exceptions.RuntimeEnvSetupError: Failed to upload package: Package size (2.1GiB) exceeds the maximum size of 500.00MiB.",
    ),
    ("HOST113", "OSError: [Errno 12] Cannot allocate memory"),
    (
        "NET101 NET105",
        "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
    ),
    (
        "NET101 NET105",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:525] Read error [127.0.0.1]:4711: Connection reset by peer connect failed remote=[127.0.0.1]:4711",
    ),
    (
        "NET105",
        "n1:123:456 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 169.254.0.1<40815> failed : Software caused connection abort",
    ),
    (
        "NET105 NET103",
        "n1:1:2 [0] NCCL WARN socketPollConnect: Connect to 172.18.0.1<51111> returned 111(Connection refused) errno 115 - no POLLOUT events",
    ),
    (
        "NET130",
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.26.2\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 217 'peer access is not supported between these two devices'",
    ),
    (
        "HOST105",
        "torch.distributed.DistBackendError: NCCL error in: /p/NCCLUtils.cpp:317, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\nLast error:\nError while creating shared memory segment /dev/shm/nccl-TuGzgz (size 9637888), error: No space left on device (28)",
    ),
    (
        "NET108 NET107",
        "n1:1:9 [3] NCCL WARN Call to ibv_modify_qp failed with error Connection timed out errno 110",
    ),
    ("NET109", "n1:1:9 [3] NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory errno 12"),
    ("CUDA147", "RuntimeError: CUDA driver initialization failed. Error 802: system not yet initialized"),
    (
        "LOG120",
        "torch.distributed.DistBackendError: NCCL error in: /p/NCCLUtils.hpp:268, unhandled cuda error, NCCL version 2.21.5\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nFailed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the operation cannot be performed in the present state'",
    ),
    (
        "NET133",
        "RuntimeError: CUDASymmetricMemoryAllocator::rendezvous: detected allocations from overlapping devices from different ranks.",
    ),
    (
        "NET113",
        "httpx.HTTPStatusError: Server error '503 Service Unavailable' for url 'http://10.1.2.3:30000/generate'",
    ),
    (
        "NET116",
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
    ),
    (
        "NET116",
        "[2025-06-01 10:00:00,000 E 5 5] gcs_rpc_client.h:179: Failed to connect to GCS at address 10.0.0.1:6379 within 5 seconds.",
    ),
    (
        "CFG101",
        "Could not override 'actor_rollout_ref.rollout.limit_images'.\nTo append to your config use +actor_rollout_ref.rollout.limit_images=5\nKey 'limit_images' is not in struct\n    full_key: actor_rollout_ref.rollout.limit_images\n    object_type=dict",
    ),
    (
        "CFG101",
        "omegaconf.errors.ConfigAttributeError: Key 'use_v1' is not in struct\n    full_key: trainer.use_v1\n    object_type=dict",
    ),
    ("CFG108", "AssertionError: ppo_mini_batch_size 0 should be larger than 0 after normalization"),
    ("CFG108", "ValueError: train_batch_size (32) must be >= actor.ppo_mini_batch_size (64)"),
    (
        "CFG108",
        "ValueError: [actor_rollout_ref.actor] Please set at least one of 'actor_rollout_ref.actor.micro_batch_size' or 'actor_rollout_ref.actor.micro_batch_size_per_gpu'.",
    ),
    ("DATA106", "NotImplementedError: Reward function is not implemented for data_source='dapo_math'"),
    (
        "DATA102",
        "pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer. Either the file is corrupted or this is not a parquet file.",
    ),
    (
        "LOAD101",
        "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/mnt/models/qwen'. Use `repo_type` argument if needed.",
    ),
    (
        "LOAD101",
        "OSError: /data/ckpt/hf does not appear to have a file named config.json. Checkout 'https://huggingface.co//data/ckpt/hf/tree/None' for available files.",
    ),
    (
        "ENV117",
        "requests.exceptions.ConnectionError: (MaxRetryError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /Qwen/x\"))",
    ),
    (
        "CUDA137",
        "RuntimeError: vLLM failed to compile the model. The most likely reason for this is that a previous compilation failed, leading to a corrupted compilation artifact.",
    ),
    ("CUDA137", "_pickle.UnpicklingError: pickle data was truncated"),
    (
        "ENV118",
        "wandb.errors.errors.CommError: Run initialization has timed out after 90.0 sec. Please try increasing the timeout",
    ),
    (
        "PY102",
        "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by /x/vllm/_C.abi3.so)",
    ),
    (
        "CUDA112",
        "ImportError: /usr/lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by /x/deep_ep_cpp.so)",
    ),
    ("CUDA111 CUDA116", "ImportError: libGL.so.1: cannot open shared object file: No such file or directory"),
    (
        "LOG131",
        "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.\n\tclass_name: WorkerDict\nThe actor is dead because all references to the actor were removed.",
    ),
    (
        "CFG113",
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n  Value error, User-specified max_model_len (40000) is greater than the derived max_model_len (max_position_embeddings=32768)",
    ),
    ("CFG113", "AssertionError: Sleep mode is not supported on current platform"),
    (
        "LOAD103",
        "ValueError: Model architectures ['Qwen3_5ForConditionalGeneration'] are not supported for now. Supported architectures: dict_keys(['A'])",
    ),
    (
        "VLLM106",
        "ValueError: vllm version 0.7.2+cu124 not supported. Currently supported versions are 0.3.1, 0.4.2, 0.5.4, 0.6.3 and 0.7.0+",
    ),
    ("LOG102", "ModuleNotFoundError: No module named 'transfer_queue'"),
    (
        "HOST110",
        "(raylet) node_manager.cc:2963: System memory low at node with IP 10.0.0.1. Used memory (60.1GB) / total capacity (64.0GB) (0.94) exceeds threshold 0.9, killing latest task with name f to avoid running out of memory.",
    ),
    (
        "CUDA157",
        "ValueError: To serve at least one request with the model's max seq len (65536), (7.00 GiB KV cache is needed, which is larger than the available KV cache memory (3.10 GiB).",
    ),
    (
        "CUDA115",
        "ValueError: The quantization method gptq_x is not supported for the current GPU. Minimum capability: 80. Current capability: 75.",
    ),
    ("RAY111", "ValueError: Not enough GPUs available. The job needs 32 GPUs, the cluster has 24."),
    (
        "CUDA115",
        "torch._inductor.exc.InductorError: RuntimeError: No valid triton configs. PTXASError: PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\nptxas fatal   : Value 'sm_130a' is not defined for option 'gpu-name'",
    ),
]
