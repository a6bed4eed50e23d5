// RUN: %nova-opt %s --decompose-composites --convert-nova-to-linalg | %filecheck %s
// The ops of the family `arithmetic`: what they are made of, and their loops.

// CHECK-LABEL: func.func @neg(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.negf
// CHECK-NOT: nova.
func.func @neg(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = "nova.neg"(%arg0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @abs(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: math.absf
// CHECK-NOT: nova.
func.func @abs(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = "nova.abs"(%arg0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @sign(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.cmpf
// CHECK: arith.select
// CHECK: arith.cmpf
// CHECK: arith.select
// CHECK: arith.cmpf
// CHECK: arith.select
// CHECK-NOT: nova.
func.func @sign(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = "nova.sign"(%arg0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @square(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.mulf
// CHECK-NOT: nova.
func.func @square(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = "nova.square"(%arg0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @reciprocal(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.divf
// CHECK-NOT: nova.
func.func @reciprocal(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = "nova.reciprocal"(%arg0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @add(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.addf
// CHECK-NOT: nova.
func.func @add(%arg0: tensor<2x3xf32>, %arg1: tensor<3xf32>) -> tensor<2x3xf32> {
  %0 = "nova.add"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @sub(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.subf
// CHECK-NOT: nova.
func.func @sub(%arg0: tensor<2x3xf32>, %arg1: tensor<3xf32>) -> tensor<2x3xf32> {
  %0 = "nova.sub"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @mul(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.mulf
// CHECK-NOT: nova.
func.func @mul(%arg0: tensor<2x3xf32>, %arg1: tensor<3xf32>) -> tensor<2x3xf32> {
  %0 = "nova.mul"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @div(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.divf
// CHECK-NOT: nova.
func.func @div(%arg0: tensor<2x3xf32>, %arg1: tensor<3xf32>) -> tensor<2x3xf32> {
  %0 = "nova.div"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @floor_div(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.remf
// CHECK: arith.subf
// CHECK: arith.divf
// CHECK: arith.cmpf
// CHECK: arith.cmpf
// CHECK: arith.cmpf
// CHECK: arith.cmpi
// CHECK: arith.andi
// CHECK: arith.subf
// CHECK: arith.select
// CHECK: math.floor
// CHECK-NOT: nova.
func.func @floor_div(%arg0: tensor<2x3xf32>, %arg1: tensor<3xf32>) -> tensor<2x3xf32> {
  %0 = "nova.floor_div"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @mod(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.remf
// CHECK: arith.cmpf
// CHECK: arith.cmpf
// CHECK: arith.cmpf
// CHECK: arith.cmpi
// CHECK: arith.andi
// CHECK: arith.addf
// CHECK: arith.select
// CHECK: arith.cmpf
// CHECK: math.copysign
// CHECK: arith.select
// CHECK-NOT: nova.
func.func @mod(%arg0: tensor<2x3xf32>, %arg1: tensor<3xf32>) -> tensor<2x3xf32> {
  %0 = "nova.mod"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @pow(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: math.powf
// CHECK-NOT: nova.
func.func @pow(%arg0: tensor<2x3xf32>, %arg1: tensor<3xf32>) -> tensor<2x3xf32> {
  %0 = "nova.pow"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @minimum(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.minimumf
// CHECK-NOT: nova.
func.func @minimum(%arg0: tensor<2x3xf32>, %arg1: tensor<3xf32>) -> tensor<2x3xf32> {
  %0 = "nova.minimum"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @maximum(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.maximumf
// CHECK-NOT: nova.
func.func @maximum(%arg0: tensor<2x3xf32>, %arg1: tensor<3xf32>) -> tensor<2x3xf32> {
  %0 = "nova.maximum"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @floor(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.floor
// CHECK-NOT: nova.
func.func @floor(%arg0: tensor<4xf64>) -> tensor<4xf64> {
  %0 = "nova.floor"(%arg0) : (tensor<4xf64>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// CHECK-LABEL: func.func @ceil(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.ceil
// CHECK-NOT: nova.
func.func @ceil(%arg0: tensor<4xf64>) -> tensor<4xf64> {
  %0 = "nova.ceil"(%arg0) : (tensor<4xf64>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// CHECK-LABEL: func.func @round(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.roundeven
// CHECK-NOT: nova.
func.func @round(%arg0: tensor<4xf64>) -> tensor<4xf64> {
  %0 = "nova.round"(%arg0) : (tensor<4xf64>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// CHECK-LABEL: func.func @trunc(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.trunc
// CHECK-NOT: nova.
func.func @trunc(%arg0: tensor<4xf64>) -> tensor<4xf64> {
  %0 = "nova.trunc"(%arg0) : (tensor<4xf64>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// CHECK-LABEL: func.func @add_integers(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.addi
// CHECK-NOT: nova.
func.func @add_integers(%arg0: tensor<2xi32>, %arg1: tensor<i32>) -> tensor<2xi32> {
  %0 = "nova.add"(%arg0, %arg1) : (tensor<2xi32>, tensor<i32>) -> tensor<2xi32>
  return %0 : tensor<2xi32>
}

// CHECK-LABEL: func.func @add_bools(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.ori
// CHECK-NOT: nova.
func.func @add_bools(%arg0: tensor<2xi1>, %arg1: tensor<2xi1>) -> tensor<2xi1> {
  %0 = "nova.add"(%arg0, %arg1) : (tensor<2xi1>, tensor<2xi1>) -> tensor<2xi1>
  return %0 : tensor<2xi1>
}

// CHECK-LABEL: func.func @div_half(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.extf %{{.*}} : f16 to f32
// CHECK: arith.extf %{{.*}} : f16 to f32
// CHECK: arith.divf
// CHECK: arith.truncf %{{.*}} : f32 to f16
// CHECK-NOT: nova.
func.func @div_half(%arg0: tensor<2xf16>, %arg1: tensor<2xf16>) -> tensor<2xf16> {
  %0 = "nova.div"(%arg0, %arg1) : (tensor<2xf16>, tensor<2xf16>) -> tensor<2xf16>
  return %0 : tensor<2xf16>
}

// CHECK-LABEL: func.func @floor_div_unsigned(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.cmpi
// CHECK: arith.select
// CHECK: arith.divui
// CHECK: arith.cmpi
// CHECK: arith.select
// CHECK-NOT: nova.
func.func @floor_div_unsigned(%arg0: tensor<2xui8>, %arg1: tensor<2xui8>) -> tensor<2xui8> {
  %0 = "nova.floor_div"(%arg0, %arg1) : (tensor<2xui8>, tensor<2xui8>) -> tensor<2xui8>
  return %0 : tensor<2xui8>
}

// CHECK-LABEL: func.func @mod_integers(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.cmpi
// CHECK: arith.cmpi
// CHECK: arith.cmpi
// CHECK: arith.andi
// CHECK: arith.ori
// CHECK: arith.select
// CHECK: arith.remsi
// CHECK: arith.cmpi
// CHECK: arith.cmpi
// CHECK: arith.cmpi
// CHECK: arith.cmpi
// CHECK-NOT: nova.
func.func @mod_integers(%arg0: tensor<2xi64>, %arg1: tensor<2xi64>) -> tensor<2xi64> {
  %0 = "nova.mod"(%arg0, %arg1) : (tensor<2xi64>, tensor<2xi64>) -> tensor<2xi64>
  return %0 : tensor<2xi64>
}

// CHECK-LABEL: func.func @maximum_unsigned(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.maxui
// CHECK-NOT: nova.
func.func @maximum_unsigned(%arg0: tensor<2xui8>, %arg1: tensor<2xui8>) -> tensor<2xui8> {
  %0 = "nova.maximum"(%arg0, %arg1) : (tensor<2xui8>, tensor<2xui8>) -> tensor<2xui8>
  return %0 : tensor<2xui8>
}

// CHECK-LABEL: func.func @pow_integers(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.andi
// CHECK: arith.cmpi
// CHECK: arith.muli
// CHECK: arith.select
// CHECK: arith.muli
// CHECK: arith.shrui
// CHECK: arith.andi
// CHECK: arith.cmpi
// CHECK: arith.muli
// CHECK: arith.select
// CHECK: arith.muli
// CHECK-NOT: nova.
func.func @pow_integers(%arg0: tensor<2xi64>, %arg1: tensor<2xi64>) -> tensor<2xi64> {
  %0 = "nova.pow"(%arg0, %arg1) : (tensor<2xi64>, tensor<2xi64>) -> tensor<2xi64>
  return %0 : tensor<2xi64>
}

// CHECK-LABEL: func.func @clamp(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.maximumf
// CHECK: arith.minimumf
// CHECK-NOT: nova.
func.func @clamp(%arg0: tensor<5xf32>) -> tensor<5xf32> {
  %0 = "nova.clamp"(%arg0) {max = 1.000000e+00 : f64, min = -1.000000e+00 : f64} : (tensor<5xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// CHECK-LABEL: func.func @clamp_below(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.maxsi
// CHECK-NOT: nova.
func.func @clamp_below(%arg0: tensor<5xi32>) -> tensor<5xi32> {
  %0 = "nova.clamp"(%arg0) {min = 0 : i64} : (tensor<5xi32>) -> tensor<5xi32>
  return %0 : tensor<5xi32>
}
