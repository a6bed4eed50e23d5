// RUN: %nova-opt %s --decompose-composites --convert-nova-to-linalg | %filecheck %s
// RUN: %nova-opt %s --decompose-composites | %filecheck %s --check-prefix=PRIMITIVES
// The ops of the family `activations`: what they are made of, and their loops.

// PRIMITIVES-LABEL: func.func @relu(
// CHECK-LABEL: func.func @relu(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.maximumf
// CHECK-NOT: nova.
func.func @relu(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "nova.relu"(%arg0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// PRIMITIVES-LABEL: func.func @leaky_relu(
// CHECK-LABEL: func.func @leaky_relu(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.cmpf
// CHECK: arith.mulf
// CHECK: arith.select
// CHECK-NOT: nova.
func.func @leaky_relu(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "nova.leaky_relu"(%arg0) {negative_slope = 1.000000e-02 : f64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// PRIMITIVES-LABEL: func.func @elu(
// CHECK-LABEL: func.func @elu(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.cmpf
// CHECK: math.expm1
// CHECK: arith.mulf
// CHECK: arith.select
// CHECK-NOT: nova.
func.func @elu(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "nova.elu"(%arg0) {alpha = 1.000000e+00 : f64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// PRIMITIVES-LABEL: func.func @gelu(
// CHECK-LABEL: func.func @gelu(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.mulf
// CHECK: arith.mulf
// CHECK: math.erf
// CHECK: arith.addf
// CHECK: arith.mulf
// CHECK-NOT: nova.
func.func @gelu(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "nova.gelu"(%arg0) {approximate = "none"} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// PRIMITIVES-LABEL: func.func @sigmoid(
// CHECK-LABEL: func.func @sigmoid(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.negf
// CHECK: math.exp
// CHECK: arith.addf
// CHECK: arith.divf
// CHECK-NOT: nova.
func.func @sigmoid(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "nova.sigmoid"(%arg0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// PRIMITIVES-LABEL: func.func @silu(
// CHECK-LABEL: func.func @silu(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: math.absf
// CHECK: math.exp
// CHECK: arith.select
// CHECK: arith.divf
// CHECK-NOT: nova.
func.func @silu(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "nova.silu"(%arg0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// PRIMITIVES-LABEL: func.func @softplus(
// CHECK-LABEL: func.func @softplus(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.mulf
// CHECK: math.absf
// CHECK: arith.negf
// CHECK: math.exp
// CHECK: math.log1p
// CHECK: arith.cmpf
// CHECK: arith.maximumf
// CHECK: arith.addf
// CHECK: arith.divf
// CHECK: arith.select
// CHECK-NOT: nova.
func.func @softplus(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "nova.softplus"(%arg0) {beta = 1.000000e+00 : f64, threshold = 2.000000e+01 : f64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// PRIMITIVES-LABEL: func.func @mish(
// CHECK-LABEL: func.func @mish(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.minimumf
// CHECK: math.exp
// CHECK: arith.addf
// CHECK: arith.mulf
// CHECK: arith.addf
// CHECK: arith.divf
// CHECK: arith.mulf
// CHECK-NOT: nova.
func.func @mish(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "nova.mish"(%arg0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// PRIMITIVES-LABEL: func.func @swiglu(
// PRIMITIVES: nova.slice %
// PRIMITIVES: nova.silu %
// PRIMITIVES: nova.slice %
// PRIMITIVES: nova.mul %
// PRIMITIVES-NOT: nova.swiglu
// CHECK-LABEL: func.func @swiglu(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK-NOT: nova.
func.func @swiglu(%arg0: tensor<2x4xf32>) -> tensor<2x2xf32> {
  %0 = "nova.swiglu"(%arg0) : (tensor<2x4xf32>) -> tensor<2x2xf32>
  return %0 : tensor<2x2xf32>
}

// PRIMITIVES-LABEL: func.func @gelu_tanh(
// CHECK-LABEL: func.func @gelu_tanh(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.mulf
// CHECK: arith.mulf
// CHECK: arith.subf
// CHECK: arith.mulf
// CHECK: math.exp
// CHECK: arith.addf
// CHECK: arith.divf
// CHECK-NOT: nova.
func.func @gelu_tanh(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.gelu"(%arg0) {approximate = "tanh"} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// PRIMITIVES-LABEL: func.func @leaky_relu_slope(
// CHECK-LABEL: func.func @leaky_relu_slope(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.cmpf
// CHECK: arith.mulf
// CHECK: arith.select
// CHECK-NOT: nova.
func.func @leaky_relu_slope(%arg0: tensor<4xf64>) -> tensor<4xf64> {
  %0 = "nova.leaky_relu"(%arg0) {negative_slope = 2.500000e-01 : f64} : (tensor<4xf64>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// PRIMITIVES-LABEL: func.func @swiglu_pair(
// PRIMITIVES: nova.silu %
// PRIMITIVES: nova.mul %
// PRIMITIVES-NOT: nova.swiglu
// CHECK-LABEL: func.func @swiglu_pair(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK-NOT: nova.
func.func @swiglu_pair(%arg0: tensor<2x4xf32>, %arg1: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "nova.swiglu"(%arg0, %arg1) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
