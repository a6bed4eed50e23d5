// RUN: %nova-opt %s --link-persistent-kernel | %filecheck %s

// A program with a loop: its kernel has decisions, and tasks that copy and that count positions.
// CHECK: gpu.module @nova_persistent_loops
// CHECK: llvm.func internal @nova_task_0(
// CHECK: llvm.func @nova_persistent_loops({{.*}}%{{.*}}: i64)
// Every block reads the condition, and then adds 1 to the counter of the decision.
// CHECK: llvm.intr.smin
// CHECK: nvvm.barrier
// CHECK: red.release.gpu.global.add.u32
// CHECK: llvm.switch
// CHECK-NEXT: 0: ^
// CHECK-NEXT: 1: ^
// CHECK-NEXT: 2: ^
// CHECK: llvm.call @nova_task_1
// CHECK: llvm.call @nova_task_2
// CHECK: llvm.func internal @nova_task_1(
// CHECK: llvm.func internal @nova_task_2(
module attributes {gpu.container_module} {
  func.func private @kernel_0(%x: memref<i8>) attributes {nova.kernel, nova.launch = array<i64: 2, 64, 0>} {
    %c1 = arith.constant 1 : index
    %c64 = arith.constant 64 : index
    gpu.launch_func @kernel_0_kernel::@kernel_0_kernel blocks in (%c1, %c1, %c1) threads in (%c64, %c1, %c1) args(%x : memref<i8>)
    return
  }
  gpu.module @kernel_0_kernel {
    llvm.func @kernel_0_kernel(%x: !llvm.ptr) attributes {gpu.kernel, nvvm.kernel} {
      %0 = llvm.mlir.constant(0 : i8) : i8
      llvm.store %0, %x : i8, !llvm.ptr
      llvm.return
    }
  }
  func.func @main(%x: memref<i1>, %y: memref<i8>) {
    scf.while : () -> () {
      %0 = memref.load %x[] : memref<i1>
      scf.condition(%0)
    } do {
      func.call @kernel_0(%y) : (memref<i8>) -> ()
      scf.yield
    }
    return
  }
}
