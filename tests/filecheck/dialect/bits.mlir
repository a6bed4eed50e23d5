// RUN: %nova-opt %s --decompose-composites --convert-nova-to-linalg | %filecheck %s
// The ops of the family `bits`: what they are made of, and their loops.

// CHECK-LABEL: func.func @bitwise_and(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.andi
// CHECK-NOT: nova.
func.func @bitwise_and(%arg0: tensor<2x3xi32>, %arg1: tensor<3xi32>) -> tensor<2x3xi32> {
  %0 = "nova.bitwise_and"(%arg0, %arg1) : (tensor<2x3xi32>, tensor<3xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// CHECK-LABEL: func.func @bitwise_or(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.ori
// CHECK-NOT: nova.
func.func @bitwise_or(%arg0: tensor<2x3xi32>, %arg1: tensor<3xi32>) -> tensor<2x3xi32> {
  %0 = "nova.bitwise_or"(%arg0, %arg1) : (tensor<2x3xi32>, tensor<3xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// CHECK-LABEL: func.func @bitwise_xor(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.xori
// CHECK-NOT: nova.
func.func @bitwise_xor(%arg0: tensor<2x3xi32>, %arg1: tensor<3xi32>) -> tensor<2x3xi32> {
  %0 = "nova.bitwise_xor"(%arg0, %arg1) : (tensor<2x3xi32>, tensor<3xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// CHECK-LABEL: func.func @bitwise_left_shift(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.cmpi
// CHECK: arith.cmpi
// CHECK: arith.andi
// CHECK: arith.select
// CHECK: arith.shli
// CHECK: arith.select
// CHECK-NOT: nova.
func.func @bitwise_left_shift(%arg0: tensor<2x3xi32>, %arg1: tensor<3xi32>) -> tensor<2x3xi32> {
  %0 = "nova.bitwise_left_shift"(%arg0, %arg1) : (tensor<2x3xi32>, tensor<3xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// CHECK-LABEL: func.func @bitwise_right_shift(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.cmpi
// CHECK: arith.cmpi
// CHECK: arith.andi
// CHECK: arith.select
// CHECK: arith.shrsi
// CHECK-NOT: nova.
func.func @bitwise_right_shift(%arg0: tensor<2x3xi32>, %arg1: tensor<3xi32>) -> tensor<2x3xi32> {
  %0 = "nova.bitwise_right_shift"(%arg0, %arg1) : (tensor<2x3xi32>, tensor<3xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// CHECK-LABEL: func.func @bitwise_not(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.xori
// CHECK-NOT: nova.
func.func @bitwise_not(%arg0: tensor<4xui8>) -> tensor<4xui8> {
  %0 = "nova.bitwise_not"(%arg0) : (tensor<4xui8>) -> tensor<4xui8>
  return %0 : tensor<4xui8>
}

// CHECK-LABEL: func.func @bitwise_not_bool(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.xori
// CHECK-NOT: nova.
func.func @bitwise_not_bool(%arg0: tensor<4xi1>) -> tensor<4xi1> {
  %0 = "nova.bitwise_not"(%arg0) : (tensor<4xi1>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}

// CHECK-LABEL: func.func @bitcast(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.bitcast %{{.*}} : f32 to i32
// CHECK-NOT: nova.
func.func @bitcast(%arg0: tensor<4xf32>) -> tensor<4xi32> {
  %0 = "nova.bitcast"(%arg0) {dtype = i32} : (tensor<4xf32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}
