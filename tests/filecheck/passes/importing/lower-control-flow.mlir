// RUN: %nova-opt %s --lower-control-flow | %filecheck %s

// CHECK-LABEL: func.func @loop(
// CHECK: scf.while (%[[A:.*]] = %arg0) : (tensor<f32>) -> tensor<f32>
// CHECK: %[[AGAIN:.*]] = stablehlo.compare
// CHECK: %[[C:.*]] = tensor.extract %[[AGAIN]][]
// CHECK: scf.condition(%[[C]]) %[[A]]
// CHECK: ^bb0(%[[B:.*]]: tensor<f32>):
// CHECK: %[[NEXT:.*]] = stablehlo.add %[[B]], %[[B]]
// CHECK: scf.yield %[[NEXT]]
func.func @loop(%x: tensor<f32>, %limit: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.while(%a = %x) : tensor<f32>
  cond {
    %1 = stablehlo.compare LT, %a, %limit : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.add %a, %a : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }
  return %0 : tensor<f32>
}

// CHECK-LABEL: func.func @choose(
// CHECK: %[[P:.*]] = tensor.extract %arg0[]
// CHECK: scf.if %[[P]]
// CHECK: scf.yield %arg1
// CHECK: } else {
// CHECK: scf.yield %arg2
func.func @choose(%p: tensor<i1>, %x: tensor<3xf32>, %y: tensor<3xf32>) -> tensor<3xf32> {
  %0 = "stablehlo.if"(%p) ({
    stablehlo.return %x : tensor<3xf32>
  }, {
    stablehlo.return %y : tensor<3xf32>
  }) : (tensor<i1>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// The last branch serves every other index.
// CHECK-LABEL: func.func @switch(
// CHECK: %[[I:.*]] = tensor.extract %arg0[]
// CHECK: %[[IS0:.*]] = arith.cmpi eq, %[[I]], %c0
// CHECK: scf.if %[[IS0]]
// CHECK: %[[IS1:.*]] = arith.cmpi eq, %[[I]], %c1
// CHECK: scf.if %[[IS1]]
// CHECK-NOT: arith.cmpi
func.func @switch(%i: tensor<i32>, %x: tensor<3xf32>, %y: tensor<3xf32>) -> tensor<3xf32> {
  %0 = "stablehlo.case"(%i) ({
    stablehlo.return %x : tensor<3xf32>
  }, {
    stablehlo.return %y : tensor<3xf32>
  }, {
    %1 = stablehlo.add %x, %y : tensor<3xf32>
    stablehlo.return %1 : tensor<3xf32>
  }) : (tensor<i32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
