// RUN: %nova-opt %s --hoist-regions | %filecheck %s

// The main of a region gets the name of its module, its kernels that name as a prefix.
// CHECK-NOT: module @branch
// CHECK: func.func private @branch_0(
// CHECK: func.func private @branch_0_0_kernel_0(
// CHECK: func.func private @branch_0_0(%{{.*}}: memref<4xf32>, %{{.*}}: memref<4xf32>, %{{.*}}: memref<0xi8>) attributes {{.*}}nova.region
// CHECK: call @branch_0_0_kernel_0(
// CHECK: func.func @main(
// CHECK: call @branch_0(
module {
  module @branch_0_0 {
    func.func private @kernel_0(%a: memref<4xf32>, %b: memref<4xf32>) attributes {nova.kernel, nova.work = 4 : i64, nova.grid = array<i64: 4>} {
      return
    }
    func.func @main(%a: memref<4xf32>, %b: memref<4xf32>, %w: memref<0xi8>) attributes {nova.inputs = 1 : i64, nova.outputs = 1 : i64, nova.workspace = 0 : i64} {
      call @kernel_0(%a, %b) : (memref<4xf32>, memref<4xf32>) -> ()
      return
    }
  }
  func.func private @branch_0(memref<i1>, memref<4xf32>, memref<4xf32>, memref<64xi8>) attributes {nova.control = {carries = 0 : i64, construct = "switch", consts = 0 : i64, length = 0 : i64, regions = [@branch_0_0], reverse = false}, nova.ins = 2 : i64, nova.outs = 1 : i64, nova.work = 4 : i64}
  func.func @main(%p: memref<i1>, %a: memref<4xf32>, %b: memref<4xf32>, %w: memref<64xi8>) attributes {nova.inputs = 2 : i64, nova.outputs = 1 : i64, nova.workspace = 64 : i64} {
    call @branch_0(%p, %a, %b, %w) : (memref<i1>, memref<4xf32>, memref<4xf32>, memref<64xi8>) -> ()
    return
  }
}
