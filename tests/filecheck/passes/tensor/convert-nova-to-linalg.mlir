// RUN: %nova-opt %s --convert-nova-to-linalg | %filecheck %s

// CHECK-DAG: #[[ID:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[ROW:.*]] = affine_map<(d0, d1) -> (d1)>
// CHECK-DAG: #[[COL:.*]] = affine_map<(d0, d1) -> (d0, 0)>
// CHECK-DAG: #[[T:.*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-DAG: #[[KEPT:.*]] = affine_map<(d0, d1) -> (d0)>

// A broadcast operand is read through its map, not expanded.
// CHECK-LABEL: func.func @broadcasts(
// CHECK-SAME: %[[X:.*]]: tensor<2x3xf32>, %[[B:.*]]: tensor<3xf32>, %[[C:.*]]: tensor<2x1xf32>
// CHECK: linalg.generic {indexing_maps = [#[[ID]], #[[ROW]], #[[ID]]], iterator_types = ["parallel", "parallel"]} ins(%[[X]], %[[B]]
// CHECK: arith.addf
// CHECK: linalg.generic {indexing_maps = [#[[ID]], #[[COL]], #[[ID]]]
// CHECK: arith.mulf
func.func @broadcasts(%x: tensor<2x3xf32>, %b: tensor<3xf32>, %c: tensor<2x1xf32>) -> tensor<2x3xf32> {
  %0 = "nova.add"(%x, %b) : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
  %1 = "nova.mul"(%0, %c) : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<2x3xf32>
  return %1 : tensor<2x3xf32>
}

// A transpose is a map too.
// CHECK-LABEL: func.func @transposes(
// CHECK: linalg.generic {indexing_maps = [#[[T]], #[[ID]]], iterator_types = ["parallel", "parallel"]}
// CHECK-NEXT: ^bb0(%[[IN:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT: linalg.yield %[[IN]]
func.func @transposes(%x: tensor<2x3xf32>) -> tensor<3x2xf32> {
  %0 = "nova.permute"(%x) {axes = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return %0 : tensor<3x2xf32>
}

// A reduction starts from a filled destination and accumulates half precision in f32.
// CHECK-LABEL: func.func @reduces(
// CHECK: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK: linalg.fill ins(%[[ZERO]] : f32) outs(%{{.*}} : tensor<2xf32>)
// CHECK: linalg.generic {indexing_maps = [#[[ID]], #[[KEPT]]], iterator_types = ["parallel", "reduction"]} ins(%{{.*}} : tensor<2x3xf16>) outs(%{{.*}} : tensor<2xf32>)
// CHECK: arith.extf %{{.*}} : f16 to f32
// CHECK: arith.addf %{{.*}} : f32
// CHECK: arith.truncf %{{.*}} : f32 to f16
func.func @reduces(%x: tensor<2x3xf16>) -> tensor<2xf16> {
  %0 = "nova.sum"(%x) {axis = 1 : i64} : (tensor<2x3xf16>) -> tensor<2xf16>
  return %0 : tensor<2xf16>
}

// CHECK-LABEL: func.func @multiplies(
// CHECK: linalg.contract {{.*}} ins(%{{.*}}, %{{.*}} : tensor<2x3xbf16>, tensor<3x4xbf16>) outs(%{{.*}} : tensor<2x4xf32>)
// CHECK: arith.truncf
func.func @multiplies(%x: tensor<2x3xbf16>, %y: tensor<3x4xbf16>) -> tensor<2x4xbf16> {
  %0 = "nova.matmul"(%x, %y) : (tensor<2x3xbf16>, tensor<3x4xbf16>) -> tensor<2x4xbf16>
  return %0 : tensor<2x4xbf16>
}

// From here on signedness is in the ops: u8 is i8, compared and widened as unsigned.
// CHECK-LABEL: func.func @unsigned(
// CHECK-SAME: %{{.*}}: tensor<2xi8>, %{{.*}}: tensor<2xi8>) -> (tensor<2xi1>, tensor<2xf32>)
// CHECK: arith.cmpi ult
// CHECK: arith.uitofp
// CHECK-NOT: ui8
func.func @unsigned(%x: tensor<2xui8>, %y: tensor<2xui8>) -> (tensor<2xi1>, tensor<2xf32>) {
  %0 = "nova.lt"(%x, %y) : (tensor<2xui8>, tensor<2xui8>) -> tensor<2xi1>
  %1 = "nova.cast"(%x) {dtype = f32} : (tensor<2xui8>) -> tensor<2xf32>
  return %0, %1 : tensor<2xi1>, tensor<2xf32>
}

// Checkpointing's barrier stays until kernels are formed.
// CHECK-LABEL: func.func @barrier(
// CHECK: nova.barrier %{{.*}}, %{{.*}} {region = 1 : i64}
func.func @barrier(%x: tensor<2xf32>, %g: tensor<f32>) -> tensor<2xf32> {
  %0 = "nova.barrier"(%x, %g) {region = 1 : i64} : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// Parts of one shape are joined with an axis for the part's number: their elements are read in order.
// CHECK-LABEL: func.func @joins_many(
// CHECK-SAME: %[[X:.*]]: tensor<2x3000xf32>, %[[Y:.*]]: tensor<2x3000xf32>
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<2x2x3000xf32>)
// CHECK: linalg.index 0
// CHECK: %[[PART:.*]] = linalg.index 1
// CHECK: %[[NUMBER:.*]] = arith.index_cast %[[PART]]
// CHECK: %[[A:.*]] = tensor.extract %[[X]]
// CHECK: %[[SECOND:.*]] = arith.cmpi sge, %[[NUMBER]]
// CHECK: %[[B:.*]] = tensor.extract %[[Y]]
// CHECK: arith.select %[[SECOND]], %[[B]], %[[A]]
// CHECK-NOT: arith.minsi
// CHECK: tensor.collapse_shape
// CHECK: return {{.*}} : tensor<2x6000xf32>
func.func @joins_many(%x: tensor<2x3000xf32>, %y: tensor<2x3000xf32>) -> tensor<2x6000xf32> {
  %0 = "nova.join"(%x, %y) {axis = 1 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<2x3000xf32>, tensor<2x3000xf32>) -> tensor<2x6000xf32>
  return %0 : tensor<2x6000xf32>
}

// A few elements are operands: what computes them is fused in.
// CHECK-LABEL: func.func @joins(
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<2x2x3xf32>)
// CHECK-NEXT: ^bb0(%[[A:.*]]: f32, %[[B:.*]]: f32, %{{.*}}: f32):
// CHECK: linalg.index 1
// CHECK: %[[SECOND:.*]] = arith.cmpi sge
// CHECK: arith.select %[[SECOND]], %[[B]], %[[A]]
// CHECK: tensor.collapse_shape
// CHECK: return {{.*}} : tensor<2x6xf32>
func.func @joins(%x: tensor<2x3xf32>, %y: tensor<2x3xf32>) -> tensor<2x6xf32> {
  %0 = "nova.join"(%x, %y) {axis = 1 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x6xf32>
  return %0 : tensor<2x6xf32>
}
