// RUN: %nova-opt %s --split-input-file --plan-workspace | %filecheck %s

// Three buffers in a chain: the third one takes the place of the first, which is dead by then.
// Offsets are multiples of 64 bytes, and the last result goes straight to the output.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[X:.*]]: memref<10xf32>, %[[OUT:.*]]: memref<10xf32>, %[[WS:.*]]: memref<128xi8>
// CHECK-SAME: nova.outputs = 1 : i64, nova.workspace = 128 : i64
// CHECK: %[[O0:.*]] = arith.constant 0 : index
// CHECK: %[[A:.*]] = memref.view %[[WS]][%[[O0]]][] : memref<128xi8> to memref<10xf32>
// CHECK: call @k(%[[X]], %[[A]])
// CHECK: %[[O1:.*]] = arith.constant 64 : index
// CHECK: %[[B:.*]] = memref.view %[[WS]][%[[O1]]]
// CHECK: call @k(%[[A]], %[[B]])
// CHECK: %[[O2:.*]] = arith.constant 0 : index
// CHECK: %[[C:.*]] = memref.view %[[WS]][%[[O2]]]
// CHECK: call @k(%[[B]], %[[C]])
// CHECK: call @k(%[[C]], %[[OUT]])
// CHECK: return{{$}}
func.func private @k(%x: memref<10xf32>, %y: memref<10xf32>) attributes {nova.grid = array<i64: 10>, nova.ins = 1 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 10 : i64} {
  return
}
func.func @main(%x: memref<10xf32>) -> memref<10xf32> {
  %a = memref.alloc() : memref<10xf32>
  call @k(%x, %a) : (memref<10xf32>, memref<10xf32>) -> ()
  %b = memref.alloc() : memref<10xf32>
  call @k(%a, %b) : (memref<10xf32>, memref<10xf32>) -> ()
  %c = memref.alloc() : memref<10xf32>
  call @k(%b, %c) : (memref<10xf32>, memref<10xf32>) -> ()
  %d = memref.alloc() : memref<10xf32>
  call @k(%c, %d) : (memref<10xf32>, memref<10xf32>) -> ()
  return %d : memref<10xf32>
}

// -----

// A buffer that is read again later keeps its place.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: nova.workspace = 192 : i64
func.func private @k(%x: memref<10xf32>, %y: memref<10xf32>) attributes {nova.grid = array<i64: 10>, nova.ins = 1 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 10 : i64} {
  return
}
func.func private @k2(%x: memref<10xf32>, %y: memref<10xf32>, %z: memref<10xf32>) attributes {nova.grid = array<i64: 10>, nova.ins = 2 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 10 : i64} {
  return
}
func.func @main(%x: memref<10xf32>) -> memref<10xf32> {
  %a = memref.alloc() : memref<10xf32>
  call @k(%x, %a) : (memref<10xf32>, memref<10xf32>) -> ()
  %b = memref.alloc() : memref<10xf32>
  call @k(%a, %b) : (memref<10xf32>, memref<10xf32>) -> ()
  %c = memref.alloc() : memref<10xf32>
  call @k(%b, %c) : (memref<10xf32>, memref<10xf32>) -> ()
  %d = memref.alloc() : memref<10xf32>
  call @k2(%c, %a, %d) : (memref<10xf32>, memref<10xf32>, memref<10xf32>) -> ()
  return %d : memref<10xf32>
}

// -----

// An update whose kernel reads the old value at the same place is written over it. The kernel is
// told of one buffer once: its input becomes its output.
// CHECK-LABEL: func.func private @k(
// CHECK-SAME: %{{.*}}: memref<10xf32>, %[[W:.*]]: memref<10xf32>)
// CHECK: linalg.generic {{.*}} ins(%[[W]] : memref<10xf32>) outs(%[[W]] : memref<10xf32>)
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[P:.*]]: memref<10xf32>, %{{.*}}: memref<0xi8>
// CHECK-SAME: nova.outputs = 0 : i64
// CHECK-NEXT: call @k(%[[P]], %[[P]])
// CHECK-NEXT: return{{$}}
#id = affine_map<(d0) -> (d0)>
func.func private @k(%x: memref<10xf32>, %y: memref<10xf32>) attributes {nova.grid = array<i64: 10>, nova.ins = 1 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 10 : i64} {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : memref<10xf32>) outs(%y : memref<10xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  }
  return
}
func.func @main(%p: memref<10xf32>) -> memref<10xf32> attributes {nova.inputs = 0 : i64, nova.updates = array<i64: 0>} {
  %a = memref.alloc() : memref<10xf32>
  call @k(%p, %a) : (memref<10xf32>, memref<10xf32>) -> ()
  return %a : memref<10xf32>
}

// -----

// One that reads the old value elsewhere is made aside and copied at the end.
// CHECK-LABEL: func.func private @copy_
// CHECK: linalg.generic
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[P:.*]]: memref<10x10xf32>, %[[WS:.*]]: memref<448xi8>
// CHECK: %[[A:.*]] = memref.view %[[WS]]
// CHECK: call @k(%[[P]], %[[A]])
// CHECK: call @copy_{{.*}}(%[[A]], %[[P]])
#id = affine_map<(d0, d1) -> (d0, d1)>
#t = affine_map<(d0, d1) -> (d1, d0)>
func.func private @k(%x: memref<10x10xf32>, %y: memref<10x10xf32>) attributes {nova.grid = array<i64: 10, 10>, nova.ins = 1 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 100 : i64} {
  linalg.generic {indexing_maps = [#t, #id], iterator_types = ["parallel", "parallel"]} ins(%x : memref<10x10xf32>) outs(%y : memref<10x10xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  }
  return
}
func.func @main(%p: memref<10x10xf32>) -> memref<10x10xf32> attributes {nova.inputs = 0 : i64, nova.updates = array<i64: 0>} {
  %a = memref.alloc() : memref<10x10xf32>
  call @k(%p, %a) : (memref<10x10xf32>, memref<10x10xf32>) -> ()
  return %a : memref<10x10xf32>
}

// -----

// A result that is an argument is copied, and so is one that is given twice.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[X:.*]]: memref<10xf32>, %[[R0:.*]]: memref<10xf32>, %[[R1:.*]]: memref<10xf32>, %[[R2:.*]]: memref<10xf32>, %{{.*}}: memref<0xi8>
// CHECK-SAME: nova.outputs = 3 : i64
// CHECK-DAG: call @k(%[[X]], %[[R1]])
// CHECK-DAG: call @copy_{{.*}}(%[[X]], %[[R0]])
// CHECK-DAG: call @copy_{{.*}}(%[[R1]], %[[R2]])
func.func private @k(%x: memref<10xf32>, %y: memref<10xf32>) attributes {nova.grid = array<i64: 10>, nova.ins = 1 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 10 : i64} {
  return
}
func.func @main(%x: memref<10xf32>) -> (memref<10xf32>, memref<10xf32>, memref<10xf32>) {
  %a = memref.alloc() : memref<10xf32>
  call @k(%x, %a) : (memref<10xf32>, memref<10xf32>) -> ()
  return %x, %a, %a : memref<10xf32>, memref<10xf32>, memref<10xf32>
}

// -----

// Two parameters that exchange their values: one of the old values is put aside first.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[P:.*]]: memref<10xf32>, %[[Q:.*]]: memref<10xf32>, %[[WS:.*]]: memref<{{.*}}xi8>
// CHECK: %[[KEPT:.*]] = memref.view %[[WS]]
// CHECK: call @copy_{{.*}}(%[[Q]], %[[KEPT]])
// CHECK: call @copy_{{.*}}(%[[P]], %[[Q]])
// CHECK: call @copy_{{.*}}(%[[KEPT]], %[[P]])
func.func @main(%p: memref<10xf32>, %q: memref<10xf32>) -> (memref<10xf32>, memref<10xf32>) attributes {nova.inputs = 0 : i64, nova.updates = array<i64: 0, 1>} {
  return %q, %p : memref<10xf32>, memref<10xf32>
}

// -----

// Two of three calls of one kernel are such updates: they get a copy, which has one buffer, and the
// other call keeps the kernel as it is.
// CHECK-LABEL: func.func private @k(
// CHECK-SAME: %[[X:.*]]: memref<10xf32>, %[[Y:.*]]: memref<10xf32>)
// CHECK: linalg.generic {{.*}} ins(%[[X]] : memref<10xf32>) outs(%[[Y]] : memref<10xf32>)
// CHECK-LABEL: func.func private @k_1(
// CHECK-SAME: %{{.*}}: memref<10xf32>, %[[W:.*]]: memref<10xf32>)
// CHECK: linalg.generic {{.*}} ins(%[[W]] : memref<10xf32>) outs(%[[W]] : memref<10xf32>)
// CHECK-NOT: @k_2
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[P:.*]]: memref<10xf32>, %[[Q:.*]]: memref<10xf32>, %[[R:.*]]: memref<10xf32>, %[[OUT:.*]]: memref<10xf32>
// CHECK-NEXT: call @k_1(%[[P]], %[[P]])
// CHECK-NEXT: call @k_1(%[[Q]], %[[Q]])
// CHECK-NEXT: call @k(%[[R]], %[[OUT]])
#id = affine_map<(d0) -> (d0)>
func.func private @k(%x: memref<10xf32>, %y: memref<10xf32>) attributes {nova.grid = array<i64: 10>, nova.ins = 1 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 10 : i64} {
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : memref<10xf32>) outs(%y : memref<10xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.negf %in : f32
    linalg.yield %0 : f32
  }
  return
}
func.func @main(%p: memref<10xf32>, %q: memref<10xf32>, %r: memref<10xf32>) -> (memref<10xf32>, memref<10xf32>, memref<10xf32>) attributes {nova.updates = array<i64: 0, 1>} {
  %a = memref.alloc() : memref<10xf32>
  call @k(%p, %a) : (memref<10xf32>, memref<10xf32>) -> ()
  %b = memref.alloc() : memref<10xf32>
  call @k(%q, %b) : (memref<10xf32>, memref<10xf32>) -> ()
  %c = memref.alloc() : memref<10xf32>
  call @k(%r, %c) : (memref<10xf32>, memref<10xf32>) -> ()
  return %c, %a, %b : memref<10xf32>, memref<10xf32>, memref<10xf32>
}
