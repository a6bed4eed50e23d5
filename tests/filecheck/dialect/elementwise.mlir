// RUN: %nova-opt %s --decompose-composites --convert-nova-to-linalg | %filecheck %s
// The ops of the family `elementwise`: what they are made of, and their loops.

// CHECK-LABEL: func.func @eq(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.cmpf
// CHECK-NOT: nova.
func.func @eq(%arg0: tensor<2x3xf32>, %arg1: tensor<2x1xf32>) -> tensor<2x3xi1> {
  %0 = "nova.eq"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<2x3xi1>
  return %0 : tensor<2x3xi1>
}

// CHECK-LABEL: func.func @ne(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.cmpf
// CHECK-NOT: nova.
func.func @ne(%arg0: tensor<2x3xf32>, %arg1: tensor<2x1xf32>) -> tensor<2x3xi1> {
  %0 = "nova.ne"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<2x3xi1>
  return %0 : tensor<2x3xi1>
}

// CHECK-LABEL: func.func @lt(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.cmpf
// CHECK-NOT: nova.
func.func @lt(%arg0: tensor<2x3xf32>, %arg1: tensor<2x1xf32>) -> tensor<2x3xi1> {
  %0 = "nova.lt"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<2x3xi1>
  return %0 : tensor<2x3xi1>
}

// CHECK-LABEL: func.func @le(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.cmpf
// CHECK-NOT: nova.
func.func @le(%arg0: tensor<2x3xf32>, %arg1: tensor<2x1xf32>) -> tensor<2x3xi1> {
  %0 = "nova.le"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<2x3xi1>
  return %0 : tensor<2x3xi1>
}

// CHECK-LABEL: func.func @gt(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.cmpf
// CHECK-NOT: nova.
func.func @gt(%arg0: tensor<2x3xf32>, %arg1: tensor<2x1xf32>) -> tensor<2x3xi1> {
  %0 = "nova.gt"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<2x3xi1>
  return %0 : tensor<2x3xi1>
}

// CHECK-LABEL: func.func @ge(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.cmpf
// CHECK-NOT: nova.
func.func @ge(%arg0: tensor<2x3xf32>, %arg1: tensor<2x1xf32>) -> tensor<2x3xi1> {
  %0 = "nova.ge"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<2x3xi1>
  return %0 : tensor<2x3xi1>
}

// CHECK-LABEL: func.func @isnan(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.cmpf
// CHECK-NOT: nova.
func.func @isnan(%arg0: tensor<4xf32>) -> tensor<4xi1> {
  %0 = "nova.isnan"(%arg0) : (tensor<4xf32>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}

// CHECK-LABEL: func.func @isinf(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.absf
// CHECK: arith.cmpf
// CHECK-NOT: nova.
func.func @isinf(%arg0: tensor<4xf32>) -> tensor<4xi1> {
  %0 = "nova.isinf"(%arg0) : (tensor<4xf32>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}

// CHECK-LABEL: func.func @isfinite(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.absf
// CHECK: arith.cmpf
// CHECK-NOT: nova.
func.func @isfinite(%arg0: tensor<4xf32>) -> tensor<4xi1> {
  %0 = "nova.isfinite"(%arg0) : (tensor<4xf32>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}

// CHECK-LABEL: func.func @logical_and(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.andi
// CHECK-NOT: nova.
func.func @logical_and(%arg0: tensor<4xi1>, %arg1: tensor<4xi1>) -> tensor<4xi1> {
  %0 = "nova.logical_and"(%arg0, %arg1) : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}

// CHECK-LABEL: func.func @logical_or(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.ori
// CHECK-NOT: nova.
func.func @logical_or(%arg0: tensor<4xi1>, %arg1: tensor<4xi1>) -> tensor<4xi1> {
  %0 = "nova.logical_or"(%arg0, %arg1) : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}

// CHECK-LABEL: func.func @logical_xor(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.xori
// CHECK-NOT: nova.
func.func @logical_xor(%arg0: tensor<4xi1>, %arg1: tensor<4xi1>) -> tensor<4xi1> {
  %0 = "nova.logical_xor"(%arg0, %arg1) : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}

// CHECK-LABEL: func.func @logical_not(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.xori
// CHECK-NOT: nova.
func.func @logical_not(%arg0: tensor<4xi1>) -> tensor<4xi1> {
  %0 = "nova.logical_not"(%arg0) : (tensor<4xi1>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}

// CHECK-LABEL: func.func @detach(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK-NOT: nova.
func.func @detach(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.detach"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @lt_unsigned(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.cmpi
// CHECK-NOT: nova.
func.func @lt_unsigned(%arg0: tensor<4xui8>, %arg1: tensor<4xui8>) -> tensor<4xi1> {
  %0 = "nova.lt"(%arg0, %arg1) : (tensor<4xui8>, tensor<4xui8>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}

// CHECK-LABEL: func.func @logical_and_floats(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.cmpf
// CHECK: arith.cmpf
// CHECK: arith.andi
// CHECK-NOT: nova.
func.func @logical_and_floats(%arg0: tensor<4xf32>, %arg1: tensor<4xf32>) -> tensor<4xi1> {
  %0 = "nova.logical_and"(%arg0, %arg1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}

// CHECK-LABEL: func.func @where(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.select
// CHECK-NOT: nova.
func.func @where(%arg0: tensor<3xi1>, %arg1: tensor<2x3xf32>, %arg2: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = "nova.where"(%arg0, %arg1, %arg2) : (tensor<3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @cast_widen(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.extf
// CHECK-NOT: nova.
func.func @cast_widen(%arg0: tensor<4xbf16>) -> tensor<4xf32> {
  %0 = "nova.cast"(%arg0) {dtype = f32} : (tensor<4xbf16>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @cast_to_half(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.truncf
// CHECK-NOT: nova.
func.func @cast_to_half(%arg0: tensor<4xf32>) -> tensor<4xf16> {
  %0 = "nova.cast"(%arg0) {dtype = f16} : (tensor<4xf32>) -> tensor<4xf16>
  return %0 : tensor<4xf16>
}

// CHECK-LABEL: func.func @cast_to_int(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.maximumf
// CHECK: arith.minimumf
// CHECK: arith.cmpf
// CHECK: arith.select
// CHECK: arith.fptosi
// CHECK: arith.trunci
// CHECK-NOT: nova.
func.func @cast_to_int(%arg0: tensor<4xf32>) -> tensor<4xi32> {
  %0 = "nova.cast"(%arg0) {dtype = i32} : (tensor<4xf32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}

// CHECK-LABEL: func.func @cast_unsigned(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.uitofp %{{.*}} : i8 to bf16
// CHECK-NOT: nova.
func.func @cast_unsigned(%arg0: tensor<4xui8>) -> tensor<4xbf16> {
  %0 = "nova.cast"(%arg0) {dtype = bf16} : (tensor<4xui8>) -> tensor<4xbf16>
  return %0 : tensor<4xbf16>
}

// CHECK-LABEL: func.func @cast_to_unsigned(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.trunci
// CHECK-NOT: nova.
func.func @cast_to_unsigned(%arg0: tensor<4xi32>) -> tensor<4xui8> {
  %0 = "nova.cast"(%arg0) {dtype = ui8} : (tensor<4xi32>) -> tensor<4xui8>
  return %0 : tensor<4xui8>
}
