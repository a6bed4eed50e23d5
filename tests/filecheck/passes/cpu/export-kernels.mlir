// RUN: %nova-opt %s --export-kernels | %filecheck %s
// RUN: %nova-opt %s --export-kernels='vector-bits=256' | %filecheck %s --check-prefix=WIDE

// The entry point takes an array of pointers and the range of tiles, loads the pointers and calls
// the body, which is internal and inlined, and is told that its buffers do not overlap.
// CHECK-LABEL: llvm.func @k(
// CHECK-SAME: %[[BUF:.*]]: !llvm.ptr, %[[BEGIN:.*]]: i64, %[[END:.*]]: i64)
// CHECK-SAME: "no-builtins", "nounwind"
// CHECK-NEXT: %[[P0:.*]] = llvm.getelementptr %[[BUF]][0] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
// CHECK-NEXT: %[[X:.*]] = llvm.load %[[P0]]
// CHECK-NEXT: %[[P1:.*]] = llvm.getelementptr %[[BUF]][1]
// CHECK-NEXT: %[[Y:.*]] = llvm.load %[[P1]]
// CHECK-NEXT: llvm.call @k_body(%[[X]], %[[Y]], %[[BEGIN]], %[[END]])
// CHECK-NEXT: llvm.return
// CHECK: llvm.func internal @k_body(
// CHECK-SAME: !llvm.ptr {llvm.noalias}, %{{.*}}: !llvm.ptr {llvm.noalias}, %{{.*}}: i64, %{{.*}}: i64)
// CHECK-SAME: "alwaysinline"
// CHECK-NOT: prefer-vector-width

// WIDE: llvm.func @k(
// WIDE-SAME: ["prefer-vector-width", "256"]
llvm.func @k(%x: !llvm.ptr, %y: !llvm.ptr, %begin: i64, %end: i64) attributes {nova.kernel} {
  llvm.return
}

// Other functions are not touched.
// CHECK-LABEL: llvm.func @other(
// CHECK-SAME: %{{.*}}: i64) {
llvm.func @other(%x: i64) {
  llvm.return
}

// What kernels share is seen by the objects of the file and by nobody else.
// CHECK-LABEL: llvm.func hidden @part(
// CHECK-SAME: "no-builtins", "nounwind", "noinline"
llvm.func @part(%x: i64) attributes {nova.shared} {
  llvm.return
}

// Buffers that allocate-scratch has placed lie in memory that the entry point takes.
// CHECK-LABEL: llvm.func @scratch(
// CHECK-SAME: %[[BUF:.*]]: !llvm.ptr, %[[BEGIN:.*]]: i64, %[[END:.*]]: i64, %[[SCRATCH:.*]]: !llvm.ptr)
// CHECK: %[[X:.*]] = llvm.load
// CHECK-NEXT: %[[S0:.*]] = llvm.getelementptr %[[SCRATCH]][0] : (!llvm.ptr) -> !llvm.ptr, i8
// CHECK-NEXT: %[[S1:.*]] = llvm.getelementptr %[[SCRATCH]][1088] : (!llvm.ptr) -> !llvm.ptr, i8
// CHECK-NEXT: llvm.call @scratch_body(%[[X]], %[[BEGIN]], %[[END]], %[[S0]], %[[S1]])
// CHECK: llvm.func internal @scratch_body(
// CHECK-SAME: !llvm.ptr {llvm.noalias}, %{{.*}}: i64, %{{.*}}: i64, %{{.*}}: !llvm.ptr {llvm.align = 64 : i64, llvm.noalias}, %{{.*}}: !llvm.ptr {llvm.align = 64 : i64, llvm.noalias})
llvm.func @scratch(%x: !llvm.ptr, %begin: i64, %end: i64, %a: !llvm.ptr, %b: !llvm.ptr) attributes {nova.kernel, nova.scratch_offsets = array<i64: 0, 1088>} {
  llvm.return
}
