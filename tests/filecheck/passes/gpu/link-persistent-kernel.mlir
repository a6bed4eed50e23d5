// RUN: %nova-opt %s --link-persistent-kernel | %filecheck %s

// The kernels stay, for launches one by one.
// CHECK: llvm.func @kernel_0_kernel(%{{.*}}: !llvm.ptr) attributes {gpu.kernel, nvvm.kernel
// A task gets the number of its block, and its barrier is that of its threads.
// CHECK: gpu.module @nova_persistent_chains
// CHECK: llvm.func internal @nova_task_0(%{{.*}}: !llvm.ptr, %[[BLOCK:.*]]: i32) attributes {always_inline}
// CHECK-NOT: ctaid
// CHECK-NOT: griddepcontrol
// CHECK: mov.u32 $0, %tid.x;
// CHECK: nvvm.barrier id = %{{.*}} number_of_threads = %{{.*}}
// CHECK: llvm.add %[[BLOCK]]
// The kernel waits for the counters of a row, runs its tasks, and adds to its counter.
// CHECK: llvm.func @nova_persistent_chains({{.*}}) attributes {gpu.kernel, {{.*}}nvvm.kernel
// CHECK: ld.acquire.gpu.global.u32
// CHECK: llvm.switch
// CHECK-NEXT: 0: ^
// CHECK: llvm.call @nova_task_0
// CHECK: red.release.gpu.global.add.u32
module attributes {gpu.container_module} {
  func.func private @kernel_0(%x: memref<64xi32>) attributes {nova.kernel, nova.launch = array<i64: 2, 64, 0>} {
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c64 = arith.constant 64 : index
    gpu.launch_func @kernel_0_kernel::@kernel_0_kernel blocks in (%c2, %c1, %c1) threads in (%c64, %c1, %c1) args(%x : memref<64xi32>)
    return
  }
  gpu.module @kernel_0_kernel {
    llvm.func @kernel_0_kernel(%x: !llvm.ptr) attributes {gpu.kernel, nvvm.kernel} {
      llvm.inline_asm has_side_effects "griddepcontrol.wait;", "~{memory}" : () -> ()
      %0 = nvvm.read.ptx.sreg.ctaid.x : i32
      %1 = nvvm.read.ptx.sreg.tid.x : i32
      nvvm.barrier
      %2 = llvm.add %0, %1 : i32
      llvm.store %2, %x : i32, !llvm.ptr
      llvm.return
    }
  }
  func.func @main(%x: memref<64xi32>) {
    call @kernel_0(%x) : (memref<64xi32>) -> ()
    return
  }
}
