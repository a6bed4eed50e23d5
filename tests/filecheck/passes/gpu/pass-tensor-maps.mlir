// RUN: %nova-opt %s --pass-tensor-maps | %filecheck %s

// Maps become parameters after the pointers, passed by value; each use reads the parameter.
// CHECK: llvm.func @kernel_0_kernel(%[[X:.*]]: !llvm.ptr,
// CHECK-SAME: %[[FIRST:.*]]: !llvm.ptr {llvm.align = 64 : i64, llvm.byval = !llvm.array<128 x i8>, nvvm.grid_constant},
// CHECK-SAME: %[[SECOND:.*]]: !llvm.ptr {llvm.align = 64 : i64, llvm.byval = !llvm.array<128 x i8>, nvvm.grid_constant})
// CHECK-NOT: nova.tensor_map
// CHECK: %[[B:.*]] = llvm.ptrtoint %[[SECOND]]
// CHECK: %[[A:.*]] = llvm.ptrtoint %[[FIRST]]
// CHECK: prefetch{{.*}} %[[A]], %[[B]]
module attributes {gpu.container_module} {
  gpu.module @kernel_0_kernel {
    llvm.func @kernel_0_kernel(%x: !llvm.ptr) attributes {gpu.kernel, nvvm.kernel} {
      %0 = llvm.ptrtoint %x : !llvm.ptr to i64
      %1 = llvm.inline_asm "nova.tensor_map 1 $0, $1;", "=l,l" %0 : (i64) -> i64
      %2 = llvm.inline_asm "nova.tensor_map 0 $0, $1;", "=l,l" %0 : (i64) -> i64
      llvm.inline_asm has_side_effects "prefetch $0, $1;", "l,l" %2, %1 : (i64, i64) -> ()
      llvm.return
    }
    // A function without maps stays.
    // CHECK: llvm.func @plain(%{{.*}}: !llvm.ptr) attributes
    llvm.func @plain(%x: !llvm.ptr) attributes {gpu.kernel, nvvm.kernel} {
      llvm.return
    }
  }
}
