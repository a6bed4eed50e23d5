// RUN: %nova-opt %s --decompose-composites --convert-nova-to-linalg | %filecheck %s
// The ops of the family `transcendental`: what they are made of, and their loops.

// CHECK-LABEL: func.func @exp(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.exp
// CHECK-NOT: nova.
func.func @exp(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.exp"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @exp2(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.exp2
// CHECK-NOT: nova.
func.func @exp2(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.exp2"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @expm1(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.expm1
// CHECK-NOT: nova.
func.func @expm1(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.expm1"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @log(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.log
// CHECK-NOT: nova.
func.func @log(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.log"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @log2(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.log2
// CHECK-NOT: nova.
func.func @log2(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.log2"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @log10(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.log10
// CHECK-NOT: nova.
func.func @log10(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.log10"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @log1p(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.log1p
// CHECK-NOT: nova.
func.func @log1p(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.log1p"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @sqrt(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.sqrt
// CHECK-NOT: nova.
func.func @sqrt(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.sqrt"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @rsqrt(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.rsqrt
// CHECK-NOT: nova.
func.func @rsqrt(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.rsqrt"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @erf(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.erf
// CHECK-NOT: nova.
func.func @erf(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.erf"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @erfc(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.erfc
// CHECK-NOT: nova.
func.func @erfc(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.erfc"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @sin(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.sin
// CHECK-NOT: nova.
func.func @sin(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.sin"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @cos(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.cos
// CHECK-NOT: nova.
func.func @cos(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.cos"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @tan(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.tan
// CHECK-NOT: nova.
func.func @tan(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.tan"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @asin(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.asin
// CHECK-NOT: nova.
func.func @asin(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.asin"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @acos(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.acos
// CHECK-NOT: nova.
func.func @acos(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.acos"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @atan(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.atan
// CHECK-NOT: nova.
func.func @atan(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.atan"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @sinh(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.sinh
// CHECK-NOT: nova.
func.func @sinh(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.sinh"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @cosh(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.cosh
// CHECK-NOT: nova.
func.func @cosh(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.cosh"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @tanh(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.tanh
// CHECK-NOT: nova.
func.func @tanh(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.tanh"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @asinh(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.asinh
// CHECK-NOT: nova.
func.func @asinh(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.asinh"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @acosh(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.acosh
// CHECK-NOT: nova.
func.func @acosh(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.acosh"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @atanh(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.atanh
// CHECK-NOT: nova.
func.func @atanh(%arg0: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nova.atanh"(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @atan2(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: math.atan2
// CHECK-NOT: nova.
func.func @atan2(%arg0: tensor<4xf64>, %arg1: tensor<4xf64>) -> tensor<4xf64> {
  %0 = "nova.atan2"(%arg0, %arg1) : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// CHECK-LABEL: func.func @exp_half(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: arith.extf %{{.*}} : f16 to f32
// CHECK: math.exp
// CHECK: arith.truncf %{{.*}} : f32 to f16
// CHECK-NOT: nova.
func.func @exp_half(%arg0: tensor<4xf16>) -> tensor<4xf16> {
  %0 = "nova.exp"(%arg0) : (tensor<4xf16>) -> tensor<4xf16>
  return %0 : tensor<4xf16>
}
