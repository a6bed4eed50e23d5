// RUN: %nova-opt %s --pin-control-flow | %filecheck %s

// Loops that load and store elements of arguments, and loops over numbers, are one thread's work.
// CHECK-LABEL: func.func private @scatter(
// CHECK-NOT: nova.device
// CHECK-LABEL: func.func private @loop(
// CHECK-NOT: nova.device
// CHECK-LABEL: func.func private @branch(
// CHECK-SAME: nova.device = "cpu"
// CHECK-LABEL: func.func private @buffer(
// CHECK-SAME: nova.device = "cpu"
module {
  func.func private @scatter(%a: memref<4xi32>, %b: memref<4xf32>) attributes {nova.kernel} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %one = arith.constant 1.0 : f32
    scf.for %i = %c0 to %c4 step %c1 {
      %k = memref.load %a[%i] : memref<4xi32>
      %at = arith.index_cast %k : i32 to index
      memref.store %one, %b[%at] : memref<4xf32>
    }
    return
  }
  func.func private @loop(%a: memref<i32>, %b: memref<i32>) attributes {nova.kernel} {
    scf.while : () -> () {
      %k = memref.load %a[] : memref<i32>
      %c0 = arith.constant 0 : i32
      %more = arith.cmpi sgt, %k, %c0 : i32
      scf.condition(%more)
    } do {
      scf.yield
    }
    return
  }
  func.func private @branch(%p: i1, %a: memref<4xf32>, %b: memref<4xf32>) attributes {nova.kernel} {
    scf.if %p {
      linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%a : memref<4xf32>) outs(%b : memref<4xf32>) {
      ^bb0(%x: f32, %y: f32):
        linalg.yield %x : f32
      }
    }
    return
  }
  func.func private @buffer(%a: memref<4xf32>) attributes {nova.kernel} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %own = memref.alloca() : memref<4xf32>
    scf.for %i = %c0 to %c4 step %c1 {
      %k = memref.load %own[%i] : memref<4xf32>
      memref.store %k, %a[%i] : memref<4xf32>
    }
    return
  }
}
