// RUN: %nova-opt %s --simplify-stablehlo | %filecheck %s
// RUN: %nova-opt %s --simplify-stablehlo=max-turns=2 | %filecheck %s --check-prefix=SHORT

// Three turns are written out.
// CHECK-LABEL: func.func @counted(
// CHECK-NOT: stablehlo.while
// CHECK-COUNT-3: stablehlo.multiply
// CHECK-NOT: stablehlo.multiply
// SHORT-LABEL: func.func @counted(
// SHORT: stablehlo.while
func.func @counted(%x: tensor<4xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %a = %x) : tensor<i32>, tensor<4xf32>
  cond {
    %1 = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.multiply %a, %a : tensor<4xf32>
    %2 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %2, %1 : tensor<i32>, tensor<4xf32>
  }
  return %0#1 : tensor<4xf32>
}

// How often this one runs depends on data.
// CHECK-LABEL: func.func @unknown(
// CHECK: stablehlo.while
func.func @unknown(%n: tensor<i32>) -> tensor<i32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0 = stablehlo.while(%i = %zero) : tensor<i32>
  cond {
    %1 = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %2 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %2 : tensor<i32>
  }
  return %0 : tensor<i32>
}

// CHECK-LABEL: func.func @nothing(
// CHECK: stablehlo.broadcast_in_dim %{{.*}}, dims = [] : (tensor<f32>) -> tensor<3xf32>
// CHECK-NOT: stablehlo.reduce
func.func @nothing(%x: tensor<0x3xf32>) -> tensor<3xf32> {
  %start = stablehlo.constant dense<2.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %start) applies stablehlo.add across dimensions = [0] : (tensor<0x3xf32>, tensor<f32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// CHECK-LABEL: func.func @either(
// CHECK: stablehlo.or %arg0, %arg1
func.func @either(%x: tensor<3xi1>, %y: tensor<3xi1>) -> tensor<3xi1> {
  %0 = stablehlo.add %x, %y : tensor<3xi1>
  return %0 : tensor<3xi1>
}

// A slice without elements, from the end of its operand.
// CHECK-LABEL: func.func @no_slice(
// CHECK-NOT: stablehlo.slice
// CHECK: stablehlo.constant dense<> : tensor<0xf32>
func.func @no_slice(%x: tensor<4xf32>) -> tensor<0xf32> {
  %0 = stablehlo.slice %x [4:4] : (tensor<4xf32>) -> tensor<0xf32>
  return %0 : tensor<0xf32>
}

// The selection is inverted, and marked.
// CHECK-LABEL: func.func @selection(
// CHECK: stablehlo.select_and_scatter
// CHECK: ^bb0(%[[A:.*]]: tensor<f32>, %[[B:.*]]: tensor<f32>):
// CHECK: %[[STAYS:.*]] = stablehlo.compare GE, %[[B]], %[[A]]
// CHECK: %[[TAKES:.*]] = stablehlo.not %[[STAYS]]
// CHECK: stablehlo.return %[[TAKES]]
// CHECK: nova.inverted
func.func @selection(%x: tensor<6xf32>, %dy: tensor<3xf32>, %zero: tensor<f32>) -> tensor<6xf32> {
  %0 = "stablehlo.select_and_scatter"(%x, %dy, %zero) <{window_dimensions = array<i64: 2>, window_strides = array<i64: 2>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<6xf32>, tensor<3xf32>, tensor<f32>) -> tensor<6xf32>
  return %0 : tensor<6xf32>
}

// A broadcast of a broadcast is one; the first is dropped unless it has other uses.
// CHECK-LABEL: func.func @broadcasts(
// CHECK-NEXT: stablehlo.broadcast_in_dim %arg0, dims = [2, 1] : (tensor<3x1xf32>) -> tensor<2x4x3xf32>
// CHECK-NEXT: [[KEPT:%.+]] = stablehlo.broadcast_in_dim %arg0, dims = [1, 0]
// CHECK-NEXT: stablehlo.broadcast_in_dim %arg0, dims = [2, 1] : (tensor<3x1xf32>) -> tensor<2x1x3xf32>
// CHECK-NEXT: return {{.*}}[[KEPT]]
func.func @broadcasts(%x: tensor<3x1xf32>) -> (tensor<2x4x3xf32>, tensor<1x3xf32>, tensor<2x1x3xf32>) {
  %0 = stablehlo.broadcast_in_dim %x, dims = [1, 0] : (tensor<3x1xf32>) -> tensor<1x3xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [1, 2] : (tensor<1x3xf32>) -> tensor<2x4x3xf32>
  %2 = stablehlo.broadcast_in_dim %x, dims = [1, 0] : (tensor<3x1xf32>) -> tensor<1x3xf32>
  %3 = stablehlo.broadcast_in_dim %2, dims = [1, 2] : (tensor<1x3xf32>) -> tensor<2x1x3xf32>
  return %1, %2, %3 : tensor<2x4x3xf32>, tensor<1x3xf32>, tensor<2x1x3xf32>
}
