// RUN: %nova-opt %s --decompose-composites --convert-nova-to-linalg | %filecheck %s
// The ops of the family `loops`: what they are made of, and their loops.

// CHECK-LABEL: func.func @cumsum(
// CHECK: scf.for
// CHECK: scf.for
// CHECK: arith.index_cast
// CHECK: tensor.extract
// CHECK: arith.cmpi
// CHECK: arith.addf
// CHECK: arith.select
// CHECK: tensor.insert
// CHECK: scf.yield
// CHECK: scf.yield
// CHECK-NOT: nova.
func.func @cumsum(%arg0: tensor<2x5xf32>) -> tensor<2x5xf32> {
  %0 = "nova.cumsum"(%arg0) {axis = 1 : i64} : (tensor<2x5xf32>) -> tensor<2x5xf32>
  return %0 : tensor<2x5xf32>
}

// CHECK-LABEL: func.func @logcumsumexp(
// CHECK: scf.for
// CHECK: scf.for
// CHECK: arith.index_cast
// CHECK: tensor.extract
// CHECK: arith.cmpi
// CHECK: arith.maximumf
// CHECK: arith.cmpf
// CHECK: arith.subf
// CHECK: math.absf
// CHECK: arith.negf
// CHECK: arith.select
// CHECK: math.exp
// CHECK-NOT: nova.
func.func @logcumsumexp(%arg0: tensor<2x5xf32>) -> tensor<2x5xf32> {
  %0 = "nova.logcumsumexp"(%arg0) {axis = 1 : i64} : (tensor<2x5xf32>) -> tensor<2x5xf32>
  return %0 : tensor<2x5xf32>
}

// CHECK-LABEL: func.func @argcummax(
// CHECK: scf.for
// CHECK: scf.for
// CHECK: arith.index_cast
// CHECK: tensor.extract
// CHECK: arith.cmpi
// CHECK: arith.cmpf
// CHECK: arith.cmpf
// CHECK: arith.ori
// CHECK: arith.cmpf
// CHECK: arith.cmpf
// CHECK: arith.xori
// CHECK: arith.andi
// CHECK-NOT: nova.
func.func @argcummax(%arg0: tensor<2x5xf32>) -> tensor<2x5xi64> {
  %0 = "nova.argcummax"(%arg0) {axis = 1 : i64} : (tensor<2x5xf32>) -> tensor<2x5xi64>
  return %0 : tensor<2x5xi64>
}

// CHECK-LABEL: func.func @argcummin(
// CHECK: scf.for
// CHECK: scf.for
// CHECK: arith.index_cast
// CHECK: tensor.extract
// CHECK: arith.cmpi
// CHECK: arith.cmpf
// CHECK: arith.cmpf
// CHECK: arith.ori
// CHECK: arith.cmpf
// CHECK: arith.cmpf
// CHECK: arith.xori
// CHECK: arith.andi
// CHECK-NOT: nova.
func.func @argcummin(%arg0: tensor<2x5xf32>) -> tensor<2x5xi64> {
  %0 = "nova.argcummin"(%arg0) {axis = 1 : i64} : (tensor<2x5xf32>) -> tensor<2x5xi64>
  return %0 : tensor<2x5xi64>
}

// CHECK-LABEL: func.func @cumsum_integers(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.extsi %{{.*}} : i32 to i64
// CHECK: scf.for
// CHECK: scf.for
// CHECK: arith.subi
// CHECK: tensor.extract
// CHECK: tensor.extract
// CHECK: arith.index_cast
// CHECK: arith.extsi %{{.*}} : i32 to i64
// CHECK: arith.addi
// CHECK: tensor.insert
// CHECK: scf.yield
// CHECK-NOT: nova.
func.func @cumsum_integers(%arg0: tensor<3x4xi32>) -> tensor<3x4xi64> {
  %0 = "nova.cumsum"(%arg0) {axis = 0 : i64} : (tensor<3x4xi32>) -> tensor<3x4xi64>
  return %0 : tensor<3x4xi64>
}

// CHECK-LABEL: func.func @linear_recurrence(
// CHECK: scf.for
// CHECK: scf.for
// CHECK: arith.index_cast
// CHECK: tensor.extract
// CHECK: tensor.extract
// CHECK: arith.cmpi
// CHECK: arith.mulf
// CHECK: arith.addf
// CHECK: arith.select
// CHECK: tensor.insert
// CHECK: scf.yield
// CHECK: scf.yield
// CHECK-NOT: nova.
func.func @linear_recurrence(%arg0: tensor<2x5xf32>, %arg1: tensor<2x5xf32>) -> tensor<2x5xf32> {
  %0 = "nova.linear_recurrence"(%arg0, %arg1) {axis = 1 : i64} : (tensor<2x5xf32>, tensor<2x5xf32>) -> tensor<2x5xf32>
  return %0 : tensor<2x5xf32>
}

// CHECK-LABEL: func.func @windows(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "parallel"]
// CHECK-NOT: nova.
func.func @windows(%arg0: tensor<2x9xf32>) -> tensor<2x3x4xf32> {
  %0 = "nova.windows"(%arg0) {dilation = array<i64: 1>, kernel = array<i64: 3>, stride = array<i64: 2>} : (tensor<2x9xf32>) -> tensor<2x3x4xf32>
  return %0 : tensor<2x3x4xf32>
}

// CHECK-LABEL: func.func @overlap_add(
// CHECK: linalg.fill
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: arith.muli
// CHECK: arith.subi
// CHECK: arith.divsi
// CHECK: arith.cmpi
// CHECK: arith.andi
// CHECK: arith.cmpi
// CHECK-NOT: nova.
func.func @overlap_add(%arg0: tensor<2x3x4xf32>) -> tensor<2x9xf32> {
  %0 = "nova.overlap_add"(%arg0) {dilation = array<i64: 1>, size = array<i64: 9>, stride = array<i64: 2>} : (tensor<2x3x4xf32>) -> tensor<2x9xf32>
  return %0 : tensor<2x9xf32>
}

// CHECK-LABEL: func.func @conv_channels_last(
// CHECK: linalg.fill
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]
// CHECK: arith.mulf
// CHECK: arith.addf
// CHECK-NOT: nova.
func.func @conv_channels_last(%arg0: tensor<2x9x4xf32>, %arg1: tensor<5x3x4xf32>) -> tensor<2x4x5xf32> {
  %0 = "nova.conv_channels_last"(%arg0, %arg1) {dilation = array<i64: 1>, stride = array<i64: 2>} : (tensor<2x9x4xf32>, tensor<5x3x4xf32>) -> tensor<2x4x5xf32>
  return %0 : tensor<2x4x5xf32>
}

// CHECK-LABEL: func.func @conv_channels_last_weight_gradient(
// CHECK: linalg.fill
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]
// CHECK: arith.mulf
// CHECK: arith.addf
// CHECK-NOT: nova.
func.func @conv_channels_last_weight_gradient(%arg0: tensor<2x9x4xf32>, %arg1: tensor<2x7x5xf32>) -> tensor<5x3x4xf32> {
  %0 = "nova.conv_channels_last_weight_gradient"(%arg0, %arg1) {dilation = array<i64: 1>, kernel = array<i64: 3>, stride = array<i64: 1>} : (tensor<2x9x4xf32>, tensor<2x7x5xf32>) -> tensor<5x3x4xf32>
  return %0 : tensor<5x3x4xf32>
}

// CHECK-LABEL: func.func @argsort(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: scf.for
// CHECK: scf.for
// CHECK: arith.addi
// CHECK: arith.minsi
// CHECK: arith.addi
// CHECK: arith.minsi
// CHECK: scf.for
// CHECK: arith.minsi
// CHECK: tensor.extract
// CHECK-NOT: nova.
func.func @argsort(%arg0: tensor<2x5xf32>) -> tensor<2x5xi64> {
  %0 = "nova.argsort"(%arg0) {axis = 1 : i64, descending = false} : (tensor<2x5xf32>) -> tensor<2x5xi64>
  return %0 : tensor<2x5xi64>
}

// CHECK-LABEL: func.func @argtopk(
// CHECK: scf.for
// CHECK: scf.for
// CHECK: tensor.extract
// CHECK: arith.index_cast
// CHECK: tensor.insert
// CHECK: tensor.insert
// CHECK: scf.yield
// CHECK: scf.for
// CHECK: arith.subi
// CHECK: tensor.extract
// CHECK: tensor.extract
// CHECK: arith.subi
// CHECK-NOT: nova.
func.func @argtopk(%arg0: tensor<2x9xf32>) -> tensor<2x2xi64> {
  %0 = "nova.argtopk"(%arg0) {axis = 1 : i64, k = 2 : i64, largest = true} : (tensor<2x9xf32>) -> tensor<2x2xi64>
  return %0 : tensor<2x2xi64>
}

// CHECK-LABEL: func.func @argtopk_smallest(
// CHECK: scf.for
// CHECK: scf.for
// CHECK: tensor.extract
// CHECK: arith.index_cast
// CHECK: tensor.insert
// CHECK: tensor.insert
// CHECK: scf.yield
// CHECK: scf.for
// CHECK: arith.subi
// CHECK: tensor.extract
// CHECK: tensor.extract
// CHECK: arith.subi
// CHECK-NOT: nova.
func.func @argtopk_smallest(%arg0: tensor<3x2xi32>) -> tensor<2x2xi64> {
  %0 = "nova.argtopk"(%arg0) {axis = 0 : i64, k = 2 : i64, largest = false} : (tensor<3x2xi32>) -> tensor<2x2xi64>
  return %0 : tensor<2x2xi64>
}

// CHECK-LABEL: func.func @argsort_descending(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: scf.for
// CHECK: scf.for
// CHECK: arith.addi
// CHECK: arith.minsi
// CHECK: arith.addi
// CHECK: arith.minsi
// CHECK: scf.for
// CHECK: arith.minsi
// CHECK: tensor.extract
// CHECK-NOT: nova.
func.func @argsort_descending(%arg0: tensor<5x2xui8>) -> tensor<5x2xi64> {
  %0 = "nova.argsort"(%arg0) {axis = 0 : i64, descending = true} : (tensor<5x2xui8>) -> tensor<5x2xi64>
  return %0 : tensor<5x2xi64>
}

// CHECK-LABEL: func.func @scatter(
// CHECK: scf.for
// CHECK: tensor.extract
// CHECK: arith.cmpi
// CHECK: arith.addi
// CHECK: arith.select
// CHECK: arith.maxsi
// CHECK: arith.minsi
// CHECK: arith.index_cast
// CHECK: tensor.extract
// CHECK: tensor.extract
// CHECK: tensor.insert
// CHECK: scf.yield
// CHECK-NOT: nova.
func.func @scatter(%arg0: tensor<4xf32>, %arg1: tensor<2xi64>, %arg2: tensor<2xf32>) -> tensor<4xf32> {
  %0 = "nova.scatter"(%arg0, %arg1, %arg2) {axis = 0 : i64} : (tensor<4xf32>, tensor<2xi64>, tensor<2xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @scatter_max(
// CHECK: scf.for
// CHECK: tensor.extract
// CHECK: arith.cmpi
// CHECK: arith.addi
// CHECK: arith.select
// CHECK: arith.maxsi
// CHECK: arith.minsi
// CHECK: arith.index_cast
// CHECK: tensor.extract
// CHECK: tensor.extract
// CHECK: arith.maximumf
// CHECK: tensor.insert
// CHECK-NOT: nova.
func.func @scatter_max(%arg0: tensor<4xf32>, %arg1: tensor<2xi64>, %arg2: tensor<2xf32>) -> tensor<4xf32> {
  %0 = "nova.scatter_max"(%arg0, %arg1, %arg2) {axis = 0 : i64} : (tensor<4xf32>, tensor<2xi64>, tensor<2xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @scatter_min(
// CHECK: scf.for
// CHECK: tensor.extract
// CHECK: arith.cmpi
// CHECK: arith.addi
// CHECK: arith.select
// CHECK: arith.maxsi
// CHECK: arith.minsi
// CHECK: arith.index_cast
// CHECK: tensor.extract
// CHECK: tensor.extract
// CHECK: arith.minsi
// CHECK: tensor.insert
// CHECK-NOT: nova.
func.func @scatter_min(%arg0: tensor<4xi32>, %arg1: tensor<2xi64>, %arg2: tensor<2xi32>) -> tensor<4xi32> {
  %0 = "nova.scatter_min"(%arg0, %arg1, %arg2) {axis = 0 : i64} : (tensor<4xi32>, tensor<2xi64>, tensor<2xi32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}

// CHECK-LABEL: func.func @searchsorted(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.addi
// CHECK: arith.shrui
// CHECK: arith.minsi
// CHECK: arith.index_cast
// CHECK: tensor.extract
// CHECK: arith.cmpf
// CHECK: arith.cmpf
// CHECK: arith.xori
// CHECK: arith.cmpf
// CHECK: arith.select
// CHECK: arith.cmpi
// CHECK-NOT: nova.
func.func @searchsorted(%arg0: tensor<3xf32>, %arg1: tensor<2x2xf32>) -> tensor<2x2xi64> {
  %0 = "nova.searchsorted"(%arg0, %arg1) {right = true} : (tensor<3xf32>, tensor<2x2xf32>) -> tensor<2x2xi64>
  return %0 : tensor<2x2xi64>
}

// CHECK-LABEL: func.func @dequantize(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "parallel"]
// CHECK: arith.extui %{{.*}} : i8 to i32
// CHECK: arith.extui %{{.*}} : i8 to i32
// CHECK: arith.extui %{{.*}} : i8 to i32
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: arith.trunci %{{.*}} : i64 to i32
// CHECK: arith.shli
// CHECK: arith.ori
// CHECK: arith.trunci %{{.*}} : i32 to i16
// CHECK: arith.bitcast
// CHECK: arith.extf %{{.*}} : f16 to f32
// CHECK-NOT: nova.
func.func @dequantize(%arg0: tensor<2x34xui8>) -> tensor<2x32xf32> {
  %0 = "nova.dequantize"(%arg0) {format = "q8_0"} : (tensor<2x34xui8>) -> tensor<2x32xf32>
  return %0 : tensor<2x32xf32>
}

// CHECK-LABEL: func.func @quantized_matmul(
// CHECK: linalg.fill
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction", "reduction", "reduction", "reduction"]
// CHECK: arith.extui %{{.*}} : i8 to i32
// CHECK: arith.extui %{{.*}} : i8 to i32
// CHECK: arith.extui %{{.*}} : i8 to i32
// CHECK: arith.extui %{{.*}} : i8 to i32
// CHECK: arith.extui %{{.*}} : i8 to i32
// CHECK: arith.extui %{{.*}} : i8 to i32
// CHECK: arith.extui %{{.*}} : i8 to i32
// CHECK: arith.extui %{{.*}} : i8 to i32
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK-NOT: nova.
func.func @quantized_matmul(%arg0: tensor<3x256xf32>, %arg1: tensor<2x144xui8>) -> tensor<3x2xf32> {
  %0 = "nova.quantized_matmul"(%arg0, %arg1) {format = "q4_k"} : (tensor<3x256xf32>, tensor<2x144xui8>) -> tensor<3x2xf32>
  return %0 : tensor<3x2xf32>
}
