// RUN: %nova-opt %s --make-signless | %filecheck %s

// CHECK-LABEL: func.func @main(%arg0: tensor<3xi8>) -> tensor<3xi8>
// CHECK-NOT: ui8
// CHECK-NOT: unrealized_conversion_cast
// CHECK: %[[C:.*]] = arith.constant dense<[1, 2, -1]> : tensor<3xi8>
// CHECK: linalg.add ins(%arg0, %[[C]]
func.func @main(%x: tensor<3xui8>) -> tensor<3xui8> {
  %0 = builtin.unrealized_conversion_cast %x : tensor<3xui8> to tensor<3xi8>
  %1 = arith.constant dense<[1, 2, -1]> : tensor<3xi8>
  %2 = tensor.empty() : tensor<3xi8>
  %3 = linalg.add ins(%0, %1 : tensor<3xi8>, tensor<3xi8>) outs(%2 : tensor<3xi8>) -> tensor<3xi8>
  %4 = builtin.unrealized_conversion_cast %3 : tensor<3xi8> to tensor<3xui8>
  return %4 : tensor<3xui8>
}
