// RUN: not %nova-opt %s --link-persistent-kernel 2>&1 | %filecheck %s

// CHECK: error: 225280 bytes of shared memory, where its tables leave 219616, cannot be in a kernel of a program with launch='persistent'
module attributes {gpu.container_module} {
  func.func private @kernel_0(%x: memref<64xi32>) attributes {nova.kernel, nova.launch = array<i64: 2, 64, 0>} {
    %c1 = arith.constant 1 : index
    %c64 = arith.constant 64 : index
    %shared = arith.constant 225280 : i32
    gpu.launch_func @kernel_0_kernel::@kernel_0_kernel blocks in (%c1, %c1, %c1) threads in (%c64, %c1, %c1) dynamic_shared_memory_size %shared args(%x : memref<64xi32>)
    return
  }
  gpu.module @kernel_0_kernel {
    llvm.func @kernel_0_kernel(%x: !llvm.ptr) attributes {gpu.kernel, nvvm.kernel} {
      %0 = llvm.mlir.constant(1 : i32) : i32
      llvm.store %0, %x : i32, !llvm.ptr
      llvm.return
    }
  }
  func.func @main(%x: memref<64xi32>) {
    call @kernel_0(%x) : (memref<64xi32>) -> ()
    return
  }
}
