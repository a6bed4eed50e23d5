// RUN: %nova-opt %s --form-host-regions | %filecheck %s

// What an island needs goes before what it does not, so that the device is at work meanwhile.
// CHECK-LABEL: func.func @main(
// CHECK: nova.sin
// CHECK: nova.cos
// CHECK: nova.tanh
// CHECK: nova.sqrt
// CHECK: call @host_region_0
// CHECK: nova.add
func.func @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %0 = "nova.tanh"(%x) : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %1 = "nova.sqrt"(%0) : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %2 = "nova.sin"(%x) : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %3 = "nova.cos"(%2) : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %4 = "nova.exp"(%3) {nova.device = "cpu"} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %5 = "nova.add"(%1, %4) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %5 : tensor<64x64xf32>
}
