// RUN: %nova-opt %s --split-input-file --mark-unwritten | %filecheck %s

// Weights stay as they are; what a launch writes, and a parameter that is updated, does not.
// CHECK-LABEL: func.func private @scale(
// CHECK-SAME: nova.unwritten = array<i64: 1>
func.func private @scale(%x: memref<8xf32>, %w: memref<8xf32>, %y: memref<8xf32>) attributes {nova.kernel, nova.grid = array<i64: 8>, nova.ins = 2 : i64, nova.outs = 1 : i64, nova.work = 8 : i64} {
  return
}
// CHECK-LABEL: func.func private @update(
// CHECK-NOT: nova.unwritten
// CHECK: return
func.func private @update(%x: memref<8xf32>, %p: memref<8xf32>, %y: memref<8xf32>) attributes {nova.kernel, nova.grid = array<i64: 8>, nova.ins = 2 : i64, nova.outs = 1 : i64, nova.work = 8 : i64} {
  return
}
func.func @main(%x: memref<8xf32>, %w: memref<8xf32>, %p: memref<8xf32>, %y: memref<8xf32>) attributes {nova.inputs = 1 : i64, nova.outputs = 1 : i64, nova.updates = array<i64: 2>} {
  call @scale(%x, %w, %y) : (memref<8xf32>, memref<8xf32>, memref<8xf32>) -> ()
  call @scale(%y, %w, %y) : (memref<8xf32>, memref<8xf32>, memref<8xf32>) -> ()
  call @update(%y, %p, %y) : (memref<8xf32>, memref<8xf32>, memref<8xf32>) -> ()
  return
}

// -----

// A loop passes weights to its body; carries change.
// CHECK-LABEL: func.func private @inside(
// CHECK-SAME: nova.unwritten = array<i64: 1>
func.func private @inside(%x: memref<8xf32>, %w: memref<8xf32>, %y: memref<8xf32>) attributes {nova.kernel, nova.grid = array<i64: 8>, nova.ins = 2 : i64, nova.outs = 1 : i64, nova.work = 8 : i64} {
  return
}
func.func private @loop(memref<i1>, memref<8xf32>, memref<8xf32>, memref<8xf32>, memref<64xi8>) attributes {nova.control = {carries = 1 : i64, construct = "while", consts = 1 : i64, length = 0 : i64, regions = [@body], reverse = false}, nova.ins = 3 : i64, nova.outs = 1 : i64}
func.func private @body(%w: memref<8xf32>, %x: memref<8xf32>, %y: memref<8xf32>, %c: memref<i1>, %s: memref<64xi8>) attributes {nova.region, nova.inputs = 2 : i64, nova.outputs = 2 : i64} {
  call @inside(%x, %w, %y) : (memref<8xf32>, memref<8xf32>, memref<8xf32>) -> ()
  return
}
func.func @main(%c: memref<i1>, %w: memref<8xf32>, %x: memref<8xf32>, %y: memref<8xf32>, %s: memref<64xi8>) attributes {nova.inputs = 3 : i64, nova.outputs = 1 : i64} {
  call @loop(%c, %w, %x, %y, %s) : (memref<i1>, memref<8xf32>, memref<8xf32>, memref<8xf32>, memref<64xi8>) -> ()
  return
}

// -----

// A parameter that later calls update in place has its old value until then.
// CHECK-LABEL: func.func private @forward(
// CHECK-SAME: nova.unwritten = array<i64: 0, 1>
func.func private @forward(%x: memref<8xf32>, %p: memref<8xf32>, %y: memref<8xf32>) attributes {nova.kernel, nova.grid = array<i64: 8>, nova.ins = 2 : i64, nova.outs = 1 : i64, nova.work = 8 : i64} {
  return
}
// CHECK-LABEL: func.func private @update(
// CHECK-NOT: nova.unwritten
// CHECK: return
func.func private @update(%y: memref<8xf32>, %p: memref<8xf32>, %new: memref<8xf32>) attributes {nova.kernel, nova.grid = array<i64: 8>, nova.ins = 2 : i64, nova.outs = 1 : i64, nova.work = 8 : i64} {
  return
}
// CHECK-LABEL: func.func private @after(
// CHECK-NOT: nova.unwritten
// CHECK: return
func.func private @after(%y: memref<8xf32>, %p: memref<8xf32>, %z: memref<8xf32>) attributes {nova.kernel, nova.grid = array<i64: 8>, nova.ins = 2 : i64, nova.outs = 1 : i64, nova.work = 8 : i64} {
  return
}
func.func @main(%x: memref<8xf32>, %p: memref<8xf32>, %q: memref<8xf32>, %y: memref<8xf32>, %z: memref<8xf32>) attributes {nova.inputs = 1 : i64, nova.outputs = 2 : i64, nova.updates = array<i64: 1, 2>} {
  call @forward(%x, %p, %y) : (memref<8xf32>, memref<8xf32>, memref<8xf32>) -> ()
  call @update(%y, %p, %p) : (memref<8xf32>, memref<8xf32>, memref<8xf32>) -> ()
  call @after(%y, %p, %z) : (memref<8xf32>, memref<8xf32>, memref<8xf32>) -> ()
  call @after(%y, %q, %z) : (memref<8xf32>, memref<8xf32>, memref<8xf32>) -> ()
  return
}
