// RUN: %nova-opt %s --apply-fast-math | %filecheck %s
// Sums, products and quotients may be rearranged, in loops too; comparisons, maxima and integer
// arithmetic stay as they are.

// CHECK-LABEL: @kernel_0
// CHECK:       scf.for
// CHECK:         arith.addf {{.*}} fastmath<reassoc,nsz,arcp,contract,afn> : f32
// CHECK-NEXT:    arith.divf {{.*}} fastmath<reassoc,nsz,arcp,contract,afn> : f32
// CHECK-NEXT:    arith.maximumf %{{[0-9]+}}, %{{[0-9]+}} : f32
// CHECK-NEXT:    arith.cmpf ogt, %{{[0-9]+}}, %{{[0-9]+}} : f32
func.func private @kernel_0(%a: memref<8xf32>, %begin: index, %end: index) attributes {nova.kernel} {
  %c1 = arith.constant 1 : index
  scf.for %i = %begin to %end step %c1 {
    %0 = memref.load %a[%i] : memref<8xf32>
    %1 = arith.addf %0, %0 : f32
    %2 = arith.divf %1, %0 fastmath<contract> : f32
    %3 = arith.maximumf %2, %0 : f32
    %4 = arith.cmpf ogt, %2, %3 : f32
    %5 = arith.select %4, %2, %3 : f32
    memref.store %5, %a[%i] : memref<8xf32>
  }
  return
}

// CHECK-LABEL: @kernel_1
// CHECK:       arith.mulf {{.*}} fastmath<reassoc,nsz,arcp,contract,afn> : vector<4xf32>
func.func private @kernel_1(%a: vector<4xf32>) -> vector<4xf32> attributes {nova.kernel} {
  %0 = arith.mulf %a, %a : vector<4xf32>
  return %0 : vector<4xf32>
}
