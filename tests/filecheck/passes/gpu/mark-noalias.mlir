// RUN: %nova-opt %s --mark-noalias | %filecheck %s

module attributes {gpu.container_module} {
  func.func private @kernel_0(%x: memref<4xf32>, %y: memref<4xf32>, %n: index) attributes {nova.kernel, nova.launch = array<i64: 1, 1, 0>} {
    %c1 = arith.constant 1 : index
    gpu.launch_func @kernel_0_kernel::@kernel_0_kernel blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%x : memref<4xf32>, %y : memref<4xf32>, %n : index)
    return
  }
  // The buffers of a kernel of Nova's do not overlap; a number is none.
  // CHECK: gpu.func @kernel_0_kernel(%{{.*}}: memref<4xf32> {llvm.noalias}, %{{.*}}: memref<4xf32> {llvm.noalias}, %{{.*}}: index) kernel
  gpu.module @kernel_0_kernel {
    gpu.func @kernel_0_kernel(%x: memref<4xf32>, %y: memref<4xf32>, %n: index) kernel {
      gpu.return
    }
  }

  // What is written and read may be how threads give each other values.
  func.func private @kernel_1(%x: memref<4xf32>, %y: memref<4xf32>) attributes {nova.kernel, nova.launch = array<i64: 1, 1, 0>} {
    %c1 = arith.constant 1 : index
    gpu.launch_func @kernel_1_kernel::@kernel_1_kernel blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%x : memref<4xf32>, %y : memref<4xf32>)
    return
  }
  // CHECK: gpu.func @kernel_1_kernel(%{{.*}}: memref<4xf32> {llvm.noalias}, %{{[^:]*}}: memref<4xf32>) kernel
  gpu.module @kernel_1_kernel {
    gpu.func @kernel_1_kernel(%x: memref<4xf32>, %y: memref<4xf32>) kernel {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %0 = memref.load %x[%c0] : memref<4xf32>
      memref.store %0, %y[%c0] : memref<4xf32>
      gpu.barrier
      %1 = memref.load %y[%c1] : memref<4xf32>
      memref.store %1, %y[%c0] : memref<4xf32>
      gpu.return
    }
  }

  // What a kernel that starts early reads, the launches before it may still write.
  func.func private @kernel_2(%x: memref<4xf32>, %y: memref<4xf32>) attributes {nova.kernel, nova.launch = array<i64: 1, 1, 0>} {
    %c1 = arith.constant 1 : index
    gpu.launch_func @kernel_2_kernel::@kernel_2_kernel blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%x : memref<4xf32>, %y : memref<4xf32>)
    return
  }
  // CHECK: gpu.func @kernel_2_kernel(%{{[^:]*}}: memref<4xf32>, %{{[^:]*}}: memref<4xf32> {llvm.noalias}) kernel
  gpu.module @kernel_2_kernel {
    gpu.func @kernel_2_kernel(%x: memref<4xf32>, %y: memref<4xf32>) kernel {
      llvm.inline_asm has_side_effects "griddepcontrol.wait;", "~{memory}" : () -> ()
      %c0 = arith.constant 0 : index
      %0 = memref.load %x[%c0] : memref<4xf32>
      memref.store %0, %y[%c0] : memref<4xf32>
      gpu.return
    }
  }

  // Of a function that somebody else launches that is not known.
  func.func @other(%x: memref<4xf32>, %y: memref<4xf32>) {
    %c1 = arith.constant 1 : index
    gpu.launch_func @theirs::@theirs blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%x : memref<4xf32>, %y : memref<4xf32>)
    return
  }
  // CHECK: gpu.func @theirs(%{{.*}}: memref<4xf32>, %{{.*}}: memref<4xf32>) kernel
  gpu.module @theirs {
    gpu.func @theirs(%x: memref<4xf32>, %y: memref<4xf32>) kernel {
      gpu.return
    }
  }
}
