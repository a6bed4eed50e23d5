// RUN: %nova-opt %s --split-input-file --nova-to-linalg --form-kernels='serial-work=0' | %filecheck %s

// A softmax is one kernel over rows: the reductions and what is broadcast back share the grid.
// CHECK-LABEL: func.func private @kernel_0(
// CHECK-SAME: nova.grid = array<i64: 128>, nova.kernel, nova.work =
// CHECK: arith.maximumf
// CHECK: math.exp
// CHECK: arith.addf
// CHECK: arith.divf
// CHECK-LABEL: func.func @main(
// CHECK-NEXT: %[[Y:.*]] = call @kernel_0(%{{.*}})
// CHECK-NEXT: return %[[Y]]
func.func @main(%x: tensor<128x64xf32>) -> tensor<128x64xf32> {
  %0 = "nova.softmax"(%x) : (tensor<128x64xf32>) -> tensor<128x64xf32>
  return %0 : tensor<128x64xf32>
}

// -----

// A product takes the elementwise work behind it along, over both of its dimensions.
// CHECK-LABEL: func.func private @kernel_0(
// CHECK-SAME: nova.grid = array<i64: 128, 96>
// CHECK: iterator_types = ["parallel", "parallel", "reduction"]
// CHECK: math.erf
// CHECK-LABEL: func.func @main(
// CHECK-NEXT: call @kernel_0(
// CHECK-NEXT: return
func.func @main(%x: tensor<128x64xf32>, %w: tensor<64x96xf32>, %b: tensor<96xf32>) -> tensor<128x96xf32> {
  %0 = "nova.matmul"(%x, %w) : (tensor<128x64xf32>, tensor<64x96xf32>) -> tensor<128x96xf32>
  %1 = "nova.add"(%0, %b) : (tensor<128x96xf32>, tensor<96xf32>) -> tensor<128x96xf32>
  %2 = "nova.gelu"(%1) : (tensor<128x96xf32>) -> tensor<128x96xf32>
  return %2 : tensor<128x96xf32>
}

// -----

// A second product reads whole columns of the first one: it is a kernel of its own.
// CHECK-LABEL: func.func private @kernel_0(
// CHECK-LABEL: func.func private @kernel_1(
// CHECK-LABEL: func.func @main(
// CHECK-NEXT: %[[H:.*]] = call @kernel_0(
// CHECK-NEXT: call @kernel_1(%{{.*}}, %[[H]])
func.func @main(%x: tensor<128x128xf32>, %w: tensor<128x128xf32>, %v: tensor<128x128xf32>) -> tensor<128x128xf32> {
  %0 = "nova.matmul"(%x, %w) : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  %1 = "nova.matmul"(%v, %0) : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  return %1 : tensor<128x128xf32>
}

// -----

// A reduction over axis 0 reads what every row made: it does not join.
// CHECK-LABEL: func.func private @kernel_0(
// CHECK-SAME: nova.grid = array<i64: 128>
// CHECK: math.exp
// CHECK-LABEL: func.func private @kernel_1(
// CHECK-SAME: nova.grid = array<i64: 64>
// CHECK: iterator_types = ["reduction", "parallel"]
// CHECK-LABEL: func.func @main(
// CHECK-NEXT: %[[R:.*]]:2 = call @kernel_0(
// CHECK-NEXT: call @kernel_1(%[[R]]#0, %[[R]]#1)
func.func @main(%x: tensor<128x64xf32>) -> tensor<64xf32> {
  %0 = "nova.exp"(%x) : (tensor<128x64xf32>) -> tensor<128x64xf32>
  %1 = "nova.sum"(%0) {axis = 1 : i64, keepdims = true} : (tensor<128x64xf32>) -> tensor<128x1xf32>
  %2 = "nova.div"(%0, %1) : (tensor<128x64xf32>, tensor<128x1xf32>) -> tensor<128x64xf32>
  %3 = "nova.sum"(%2) {axis = 0 : i64} : (tensor<128x64xf32>) -> tensor<64xf32>
  return %3 : tensor<64xf32>
}

// -----

// A transposed read is not at the reader's own grid point.
// CHECK-LABEL: func.func private @kernel_0(
// CHECK-LABEL: func.func private @kernel_1(
// CHECK-SAME: nova.grid = array<i64: 128, 128>
func.func @main(%x: tensor<128x128xf32>) -> tensor<128x128xf32> {
  %0 = "nova.softmax"(%x) : (tensor<128x128xf32>) -> tensor<128x128xf32>
  %1 = "nova.permute"(%0) {axes = array<i64: 1, 0>} : (tensor<128x128xf32>) -> tensor<128x128xf32>
  %2 = "nova.add"(%0, %1) : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  return %2 : tensor<128x128xf32>
}

// -----

// Neither is one at computed indices, even when the same value is also read in place.
// CHECK-LABEL: func.func private @kernel_0(
// CHECK: arith.divf
// CHECK-NOT: tensor.extract
// CHECK-LABEL: func.func private @kernel_1(
// CHECK: tensor.extract
func.func @main(%x: tensor<128x64xf32>, %i: tensor<128x64xi64>) -> tensor<128x64xf32> {
  %0 = "nova.softmax"(%x) : (tensor<128x64xf32>) -> tensor<128x64xf32>
  %1 = "nova.gather"(%0, %i) {axis = 0 : i64} : (tensor<128x64xf32>, tensor<128x64xi64>) -> tensor<128x64xf32>
  %2 = "nova.add"(%0, %1) : (tensor<128x64xf32>, tensor<128x64xf32>) -> tensor<128x64xf32>
  return %2 : tensor<128x64xf32>
}

// -----

// Neither is one through a reshape, even when the same value is also read in place.
// CHECK-LABEL: func.func private @kernel_0(
// CHECK: arith.divf
// CHECK-LABEL: func.func private @kernel_1(
// CHECK-SAME: tensor<8192xf32>
// CHECK-LABEL: func.func @main(
// CHECK: tensor.collapse_shape
// CHECK: call @kernel_1
func.func @main(%x: tensor<128x64xf32>) -> tensor<128x64xf32> {
  %0 = "nova.softmax"(%x) : (tensor<128x64xf32>) -> tensor<128x64xf32>
  %1 = "nova.reshape"(%0) {shape = array<i64: 8192>} : (tensor<128x64xf32>) -> tensor<8192xf32>
  %2 = "nova.slice"(%1) {starts = array<i64: 8128>, stops = array<i64: 8192>} : (tensor<8192xf32>) -> tensor<64xf32>
  %3 = "nova.add"(%0, %2) : (tensor<128x64xf32>, tensor<64xf32>) -> tensor<128x64xf32>
  return %3 : tensor<128x64xf32>
}

// -----

// Independent work of the same size does not join: nothing is saved by it.
// CHECK-LABEL: func.func private @kernel_0(
// CHECK: math.exp
// CHECK-LABEL: func.func private @kernel_1(
// CHECK: math.log
func.func @main(%x: tensor<128x64xf32>, %y: tensor<128x64xf32>) -> (tensor<128x64xf32>, tensor<128x64xf32>) {
  %0 = "nova.exp"(%x) : (tensor<128x64xf32>) -> tensor<128x64xf32>
  %1 = "nova.log"(%y) : (tensor<128x64xf32>) -> tensor<128x64xf32>
  return %0, %1 : tensor<128x64xf32>, tensor<128x64xf32>
}

// -----

// Barriers have done their work when kernels stand.
// CHECK-LABEL: func.func @main(
// CHECK-NOT: nova.barrier
// CHECK: return
func.func @main(%x: tensor<128x64xf32>, %g: tensor<f32>) -> tensor<128x64xf32> {
  %0 = "nova.barrier"(%x, %g) {region = 1 : i64} : (tensor<128x64xf32>, tensor<f32>) -> tensor<128x64xf32>
  %1 = "nova.exp"(%0) : (tensor<128x64xf32>) -> tensor<128x64xf32>
  return %1 : tensor<128x64xf32>
}

// -----

// What a barrier holds back comes in a later kernel than what it waits for, though it could join.
// CHECK-LABEL: func.func private @kernel_0(
// CHECK: math.exp
// CHECK: math.log
// CHECK-LABEL: func.func private @kernel_1(
// CHECK: math.exp
// CHECK-LABEL: func.func @main(
// CHECK: call @kernel_0
// CHECK: call @kernel_1
func.func @main(%x: tensor<128x64xf32>) -> (tensor<128x64xf32>, tensor<128x64xf32>) {
  %0 = "nova.exp"(%x) : (tensor<128x64xf32>) -> tensor<128x64xf32>
  %1 = "nova.sum"(%0) {axis = 1 : i64, keepdims = true} : (tensor<128x64xf32>) -> tensor<128x1xf32>
  %2 = "nova.div"(%0, %1) : (tensor<128x64xf32>, tensor<128x1xf32>) -> tensor<128x64xf32>
  %3 = "nova.log"(%2) : (tensor<128x64xf32>) -> tensor<128x64xf32>
  %4 = "nova.barrier"(%2, %3) {region = 1 : i64} : (tensor<128x64xf32>, tensor<128x64xf32>) -> tensor<128x64xf32>
  %5 = "nova.exp"(%4) : (tensor<128x64xf32>) -> tensor<128x64xf32>
  return %3, %5 : tensor<128x64xf32>, tensor<128x64xf32>
}

// -----

// A barrier that waits for memory comes after all readers of the value, and of those of its size.
// CHECK-LABEL: func.func private @kernel_0(
// CHECK-LABEL: func.func private @kernel_1(
// CHECK-LABEL: func.func private @kernel_2(
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[X:.*]]: tensor<64x512xf32>, %[[Y:.*]]: tensor<512x256xf32>
// CHECK: %[[A:.*]] = call @kernel_0(%[[X]], %[[Y]])
// CHECK: %[[D:.*]] = call @kernel_1(%[[A]]
// CHECK: %[[B:.*]] = call @kernel_2(%[[X]], %[[Y]])
// CHECK: return %[[B]], %[[D]]
func.func @main(%x: tensor<64x512xf32>, %y: tensor<512x256xf32>) -> (tensor<64x256xf32>, tensor<64x512xf32>) {
  %a = "nova.matmul"(%x, %y) : (tensor<64x512xf32>, tensor<512x256xf32>) -> tensor<64x256xf32>
  %0 = "nova.barrier"(%x, %a) {region = 0 : i64, released = true} : (tensor<64x512xf32>, tensor<64x256xf32>) -> tensor<64x512xf32>
  %b = "nova.matmul"(%0, %y) : (tensor<64x512xf32>, tensor<512x256xf32>) -> tensor<64x256xf32>
  %c = "nova.permute"(%y) {axes = array<i64: 1, 0>} : (tensor<512x256xf32>) -> tensor<256x512xf32>
  %d = "nova.matmul"(%a, %c) : (tensor<64x256xf32>, tensor<256x512xf32>) -> tensor<64x512xf32>
  return %b, %d : tensor<64x256xf32>, tensor<64x512xf32>
}

// -----

// Row-wise work in front of a product is a kernel of its own, and so is that behind a large one.
// CHECK-LABEL: func.func private @kernel_0(
// CHECK-SAME: nova.grid = array<i64: 128>
// CHECK-NOT: linalg.generic {{.*}}"parallel", "parallel", "reduction"]
// CHECK-LABEL: func.func private @kernel_1(
// CHECK-SAME: nova.grid = array<i64: 128, 512>
// CHECK: iterator_types = ["parallel", "parallel", "reduction"]
// CHECK-LABEL: func.func private @kernel_2(
// CHECK-SAME: nova.grid = array<i64: 128>
// CHECK: math.exp
// CHECK-LABEL: func.func @main(
func.func @main(%x: tensor<128x256xf32>, %w: tensor<256x512xf32>) -> tensor<128x512xf32> {
  %0 = "nova.softmax"(%x) : (tensor<128x256xf32>) -> tensor<128x256xf32>
  %1 = "nova.matmul"(%0, %w) : (tensor<128x256xf32>, tensor<256x512xf32>) -> tensor<128x512xf32>
  %2 = "nova.softmax"(%1) : (tensor<128x512xf32>) -> tensor<128x512xf32>
  return %2 : tensor<128x512xf32>
}

// -----

// Where right operands are small the rows go on: scores, softmax and the product behind it.
// CHECK-LABEL: func.func private @kernel_0(
// CHECK-SAME: nova.grid = array<i64: 8, 64>
// CHECK-NOT: func.func private @kernel_1(
// CHECK-LABEL: func.func @main(
func.func @main(%q: tensor<8x64x32xf32>, %k: tensor<8x32x64xf32>, %v: tensor<8x64x32xf32>) -> tensor<8x64x32xf32> {
  %0 = "nova.matmul"(%q, %k) : (tensor<8x64x32xf32>, tensor<8x32x64xf32>) -> tensor<8x64x64xf32>
  %1 = "nova.softmax"(%0) : (tensor<8x64x64xf32>) -> tensor<8x64x64xf32>
  %2 = "nova.matmul"(%1, %v) : (tensor<8x64x64xf32>, tensor<8x64x32xf32>) -> tensor<8x64x32xf32>
  return %2 : tensor<8x64x32xf32>
}

// -----

// The gradient of a weight is made where the weight is updated, behind what reads the old weight.
// CHECK-LABEL: func.func private @kernel_0(
// CHECK-SAME: nova.grid = array<i64: 64, 256>
// CHECK-NOT: arith.subf
// CHECK-LABEL: func.func private @kernel_1(
// CHECK-SAME: nova.grid = array<i64: 256, 256>
// CHECK: iterator_types = ["parallel", "parallel", "reduction"]
// CHECK: arith.subf
// CHECK-LABEL: func.func @main(
func.func @main(%x: tensor<64x256xf32>, %g: tensor<64x256xf32>, %w: tensor<256x256xf32>) -> (tensor<64x256xf32>, tensor<256x256xf32>) attributes {nova.inputs = 2 : i64, nova.updates = array<i64: 2>} {
  %0 = "nova.permute"(%x) {axes = array<i64: 1, 0>} : (tensor<64x256xf32>) -> tensor<256x64xf32>
  %1 = "nova.matmul"(%0, %g) : (tensor<256x64xf32>, tensor<64x256xf32>) -> tensor<256x256xf32>
  %2 = "nova.sub"(%w, %1) : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %3 = "nova.matmul"(%g, %w) : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
  return %3, %2 : tensor<64x256xf32>, tensor<256x256xf32>
}

// -----

// Zeros that are also read as a value: the product has its own and is given none.
// CHECK-LABEL: func.func private @kernel_{{.*}}(%{{[a-z0-9]*}}: tensor<128x64xf32>, %{{[a-z0-9]*}}: tensor<64x128xf32>) -> tensor<128x128xf32>
// CHECK-SAME: nova.grid = array<i64: 128, 128>
// CHECK: iterator_types = ["parallel", "parallel", "reduction"]
// CHECK-LABEL: func.func @main(
func.func @main(%x: tensor<128x64xf32>, %w: tensor<64x128xf32>, %i: tensor<4xi64>, %u: tensor<4x128xf32>) -> (tensor<128x128xf32>, tensor<128x128xf32>) {
  %z = "nova.constant"() {value = dense<0.0> : tensor<128x128xf32>} : () -> tensor<128x128xf32>
  %0 = "nova.index_add"(%z, %i, %u) {axis = 0 : i64} : (tensor<128x128xf32>, tensor<4xi64>, tensor<4x128xf32>) -> tensor<128x128xf32>
  %1 = "nova.matmul"(%x, %w) : (tensor<128x64xf32>, tensor<64x128xf32>) -> tensor<128x128xf32>
  return %0, %1 : tensor<128x128xf32>, tensor<128x128xf32>
}
