// RUN: %nova-opt %s --plan-workspace=max-workspace=64 | %filecheck %s

// With a limit, intermediates are in the part of the result that is written last: not in its first
// row, which @first writes before they are dead, and not where the kernel reads them that writes it.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[X:.*]]: memref<16xf32>, %[[OUT:.*]]: memref<2x64xf32>, %[[WS:.*]]: memref<64xi8>
// CHECK-SAME: nova.workspace = 64 : i64
// CHECK: call @first(%[[X]], %[[OUT]])
// CHECK: %[[BYTES:.*]] = builtin.unrealized_conversion_cast %[[OUT]] : memref<2x64xf32> to memref<512xi8>
// CHECK: %[[AT:.*]] = arith.constant 256 : index
// CHECK: %[[A:.*]] = memref.view %[[BYTES]][%[[AT]]][] : memref<512xi8> to memref<16xf32>
// CHECK: call @k(%[[X]], %[[A]])
// CHECK: memref.view {{.*}} : memref<512xi8> to memref<16xf32>
// CHECK: %[[C:.*]] = memref.view %[[WS]][{{.*}}][] : memref<64xi8> to memref<16xf32>
// CHECK: call @last(%[[C]], %[[OUT]])
func.func private @k(%x: memref<16xf32>, %y: memref<16xf32>) attributes {nova.grid = array<i64: 16>, nova.ins = 1 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 10 : i64} {
  return
}
func.func private @first(%x: memref<16xf32>, %y: memref<2x64xf32>) attributes {nova.grid = array<i64: 16>, nova.ins = 1 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 10 : i64} {
  %c0 = arith.constant 0 : index
  %v = memref.reinterpret_cast %y to offset: [0], sizes: [64], strides: [1] : memref<2x64xf32> to memref<64xf32>
  %0 = memref.load %x[%c0] : memref<16xf32>
  memref.store %0, %v[%c0] : memref<64xf32>
  return
}
func.func private @last(%x: memref<16xf32>, %y: memref<2x64xf32>) attributes {nova.grid = array<i64: 16>, nova.ins = 1 : i64, nova.kernel, nova.outs = 1 : i64, nova.work = 10 : i64} {
  %c0 = arith.constant 0 : index
  %v = memref.reinterpret_cast %y to offset: [64], sizes: [64], strides: [1] : memref<2x64xf32> to memref<64xf32, strided<[1], offset: 64>>
  %0 = memref.load %x[%c0] : memref<16xf32>
  memref.store %0, %v[%c0] : memref<64xf32, strided<[1], offset: 64>>
  return
}
func.func @main(%x: memref<16xf32>) -> memref<2x64xf32> {
  %y = memref.alloc() : memref<2x64xf32>
  call @first(%x, %y) : (memref<16xf32>, memref<2x64xf32>) -> ()
  %a = memref.alloc() : memref<16xf32>
  call @k(%x, %a) : (memref<16xf32>, memref<16xf32>) -> ()
  %b = memref.alloc() : memref<16xf32>
  call @k(%a, %b) : (memref<16xf32>, memref<16xf32>) -> ()
  %c = memref.alloc() : memref<16xf32>
  call @k(%b, %c) : (memref<16xf32>, memref<16xf32>) -> ()
  call @last(%c, %y) : (memref<16xf32>, memref<2x64xf32>) -> ()
  return %y : memref<2x64xf32>
}
