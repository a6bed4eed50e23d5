// RUN: %nova-opt %s --set-launch-bounds | %filecheck %s

// A kernel that says how many of its blocks shall run side by side.
// CHECK: func.func private @kernel_0
// CHECK-SAME: nova.min_blocks_per_sm = 2
module attributes {gpu.container_module} {
  func.func private @kernel_0(%x: memref<4xf32>) attributes {nova.kernel, nova.min_blocks_per_sm = 2 : i64} {
    %c1 = arith.constant 1 : index
    gpu.launch_func @kernel_0_kernel::@kernel_0_kernel blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%x : memref<4xf32>)
    return
  }
  // CHECK: gpu.func @kernel_0_kernel{{.*}}nvvm.minctasm = 2 : i32
  gpu.module @kernel_0_kernel {
    gpu.func @kernel_0_kernel(%x: memref<4xf32>) kernel {
      gpu.return
    }
  }

  // One that does not.
  func.func private @kernel_1(%x: memref<4xf32>) attributes {nova.kernel} {
    %c1 = arith.constant 1 : index
    gpu.launch_func @kernel_1_kernel::@kernel_1_kernel blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%x : memref<4xf32>)
    return
  }
  // CHECK: gpu.func @kernel_1_kernel
  // CHECK-NOT: minctasm
  gpu.module @kernel_1_kernel {
    gpu.func @kernel_1_kernel(%x: memref<4xf32>) kernel {
      gpu.return
    }
  }

  // One with clusters of two blocks.
  func.func private @kernel_2(%x: memref<4xf32>) attributes {nova.kernel, nova.cluster = 2 : i64} {
    %c2 = arith.constant 2 : index
    %c1 = arith.constant 1 : index
    gpu.launch_func @kernel_2_kernel::@kernel_2_kernel blocks in (%c2, %c1, %c1) threads in (%c1, %c1, %c1) args(%x : memref<4xf32>)
    return
  }
  // CHECK: gpu.func @kernel_2_kernel{{.*}}nvvm.cluster_dim = array<i32: 2, 1, 1>
  gpu.module @kernel_2_kernel {
    gpu.func @kernel_2_kernel(%x: memref<4xf32>) kernel {
      gpu.return
    }
  }
}
