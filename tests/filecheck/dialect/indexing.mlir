// RUN: %nova-opt %s --decompose-composites --convert-nova-to-linalg | %filecheck %s
// RUN: %nova-opt %s --decompose-composites | %filecheck %s --check-prefix=PRIMITIVES
// The ops of the family `indexing`: what they are made of, and their loops.

// PRIMITIVES-LABEL: func.func @gather(
// CHECK-LABEL: func.func @gather(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: arith.cmpi
// CHECK: arith.addi
// CHECK: arith.select
// CHECK: arith.maxsi
// CHECK: arith.minsi
// CHECK: arith.index_cast
// CHECK: arith.index_cast
// CHECK-NOT: nova.
func.func @gather(%arg0: tensor<4x3xf32>, %arg1: tensor<2x3xi64>) -> tensor<2x3xf32> {
  %0 = "nova.gather"(%arg0, %arg1) {axis = 0 : i64} : (tensor<4x3xf32>, tensor<2x3xi64>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// PRIMITIVES-LABEL: func.func @take(
// CHECK-LABEL: func.func @take(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: arith.cmpi
// CHECK: arith.addi
// CHECK: arith.select
// CHECK: arith.maxsi
// CHECK: arith.minsi
// CHECK: arith.index_cast
// CHECK: arith.index_cast
// CHECK-NOT: nova.
func.func @take(%arg0: tensor<4x3xf32>, %arg1: tensor<5xi64>) -> tensor<5x3xf32> {
  %0 = "nova.take"(%arg0, %arg1) {axis = 0 : i64} : (tensor<4x3xf32>, tensor<5xi64>) -> tensor<5x3xf32>
  return %0 : tensor<5x3xf32>
}

// PRIMITIVES-LABEL: func.func @embedding(
// PRIMITIVES: nova.take %
// PRIMITIVES-NOT: nova.embedding
// CHECK-LABEL: func.func @embedding(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "parallel"]
// CHECK-NOT: nova.
func.func @embedding(%arg0: tensor<10x4xf32>, %arg1: tensor<2x3xi64>) -> tensor<2x3x4xf32> {
  %0 = "nova.embedding"(%arg0, %arg1) : (tensor<10x4xf32>, tensor<2x3xi64>) -> tensor<2x3x4xf32>
  return %0 : tensor<2x3x4xf32>
}

// PRIMITIVES-LABEL: func.func @scatter_add(
// CHECK-LABEL: func.func @scatter_add(
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
// CHECK: arith.addf
// CHECK: tensor.insert
// CHECK-NOT: nova.
func.func @scatter_add(%arg0: tensor<4xf32>, %arg1: tensor<6xi64>, %arg2: tensor<6xf32>) -> tensor<4xf32> {
  %0 = "nova.scatter_add"(%arg0, %arg1, %arg2) {axis = 0 : i64} : (tensor<4xf32>, tensor<6xi64>, tensor<6xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// PRIMITIVES-LABEL: func.func @index_add(
// CHECK-LABEL: func.func @index_add(
// CHECK: scf.for
// CHECK: tensor.extract
// CHECK: arith.cmpi
// CHECK: arith.addi
// CHECK: arith.select
// CHECK: arith.maxsi
// CHECK: arith.minsi
// CHECK: arith.index_cast
// CHECK: scf.for
// CHECK: tensor.extract
// CHECK: tensor.extract
// CHECK: arith.addf
// CHECK-NOT: nova.
func.func @index_add(%arg0: tensor<4x3xf32>, %arg1: tensor<6xi64>, %arg2: tensor<6x3xf32>) -> tensor<4x3xf32> {
  %0 = "nova.index_add"(%arg0, %arg1, %arg2) {axis = 0 : i64} : (tensor<4x3xf32>, tensor<6xi64>, tensor<6x3xf32>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}

// PRIMITIVES-LABEL: func.func @one_hot(
// CHECK-LABEL: func.func @one_hot(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK: arith.cmpi
// CHECK: arith.addi
// CHECK: arith.select
// CHECK: arith.maxsi
// CHECK: arith.minsi
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: arith.cmpi
// CHECK: arith.uitofp %{{.*}} : i1 to f32
// CHECK-NOT: nova.
func.func @one_hot(%arg0: tensor<4xi64>) -> tensor<4x3xf32> {
  %0 = "nova.one_hot"(%arg0) {dtype = f32, num_classes = 3 : i64} : (tensor<4xi64>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}

// PRIMITIVES-LABEL: func.func @arange(
// CHECK-LABEL: func.func @arange(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: arith.muli
// CHECK: arith.addi
// CHECK-NOT: nova.
func.func @arange() -> tensor<5xi64> {
  %0 = "nova.arange"() {dtype = i64, start = 0 : i64, step = 1 : i64, stop = 5 : i64} : () -> tensor<5xi64>
  return %0 : tensor<5xi64>
}

// PRIMITIVES-LABEL: func.func @arange_floats(
// CHECK-LABEL: func.func @arange_floats(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK: linalg.index
// CHECK: arith.index_cast
// CHECK: arith.sitofp %{{.*}} : i64 to f64
// CHECK: arith.mulf
// CHECK: arith.addf
// CHECK: arith.truncf %{{.*}} : f64 to f32
// CHECK-NOT: nova.
func.func @arange_floats() -> tensor<3xf32> {
  %0 = "nova.arange"() {dtype = f32, start = 5.000000e-01 : f64, step = 5.000000e-01 : f64, stop = 2.000000e+00 : f64} : () -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// PRIMITIVES-LABEL: func.func @full(
// CHECK-LABEL: func.func @full(
// CHECK: linalg.fill
// CHECK-NOT: nova.
func.func @full() -> tensor<2x3xf32> {
  %0 = "nova.full"() {dtype = f32, shape = array<i64: 2, 3>, value = 1.500000e+00 : f64} : () -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// PRIMITIVES-LABEL: func.func @extent(
// CHECK-LABEL: func.func @extent(
// CHECK: linalg.generic {{.*}}iterator_types = []
// CHECK-NOT: nova.
func.func @extent() -> tensor<f32> {
  %0 = "nova.extent"() {dtype = f32, value = 5 : i64} : () -> tensor<f32>
  return %0 : tensor<f32>
}

// PRIMITIVES-LABEL: func.func @dynamic_slice(
// CHECK-LABEL: func.func @dynamic_slice(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK-NOT: nova.
func.func @dynamic_slice(%arg0: tensor<4x3xf32>, %arg1: tensor<2xi64>) -> tensor<2x2xf32> {
  %0 = "nova.dynamic_slice"(%arg0, %arg1) {slice_sizes = array<i64: 2, 2>} : (tensor<4x3xf32>, tensor<2xi64>) -> tensor<2x2xf32>
  return %0 : tensor<2x2xf32>
}

// PRIMITIVES-LABEL: func.func @dynamic_update_slice(
// CHECK-LABEL: func.func @dynamic_update_slice(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]
// CHECK-NOT: nova.
func.func @dynamic_update_slice(%arg0: tensor<4x3xf32>, %arg1: tensor<2x2xf32>, %arg2: tensor<2xi64>) -> tensor<4x3xf32> {
  %0 = "nova.dynamic_update_slice"(%arg0, %arg1, %arg2) : (tensor<4x3xf32>, tensor<2x2xf32>, tensor<2xi64>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}

// PRIMITIVES-LABEL: func.func @clamp_index(
// PRIMITIVES: nova.lt %
// PRIMITIVES: nova.add %
// PRIMITIVES: nova.where %
// PRIMITIVES: nova.maximum %
// PRIMITIVES: nova.minimum %
// PRIMITIVES-NOT: nova.clamp_index
// CHECK-LABEL: func.func @clamp_index(
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel"]
// CHECK-NOT: nova.
func.func @clamp_index(%arg0: tensor<4xi64>) -> tensor<4xi64> {
  %0 = "nova.clamp_index"(%arg0) {axis_size = 3 : i64} : (tensor<4xi64>) -> tensor<4xi64>
  return %0 : tensor<4xi64>
}
