// RUN: %nova-opt %s --fuse-launches | %filecheck %s

// Two launches that do not depend on each other, and one that reads both results. The first two are
// fused: blocks 0 to 3 run @kernel_0, block 4 runs @kernel_1 in its first 32 threads, with a
// barrier of these.
module attributes {gpu.container_module} {
  // CHECK: func.func private @kernels_0_1(%arg0: memref<4xf32>, %arg1: memref<4xf32>, %arg2: memref<4xf32>, %arg3: memref<4xf32>)
  // CHECK-SAME: nova.flops = 5
  // CHECK-SAME: nova.ins = 2
  // CHECK-SAME: nova.launch = array<i64: 5, 64, 128>
  // CHECK: gpu.launch blocks(%[[B:[a-z0-9]+]], {{.*}} threads(%[[T:[a-z0-9]+]], {{.*}} dynamic_shared_memory_size
  // CHECK: %[[FIRST:.*]] = arith.cmpi ult, %[[B]], %{{.*}}
  // CHECK: scf.if %[[FIRST]] {
  // CHECK: memref.store %{{.*}}, %arg2[%[[B]]]
  // CHECK: } else {
  // CHECK: %[[OWN:.*]] = arith.subi %[[B]]
  // CHECK: %[[HAS:.*]] = arith.cmpi ult, %[[T]]
  // CHECK: scf.if %[[HAS]] {
  // CHECK: nvvm.barrier id = %{{.*}} number_of_threads = %{{.*}}
  // CHECK: memref.store %{{.*}}, %arg3[%[[OWN]]]
  func.func private @kernel_0(%x: memref<4xf32>, %y: memref<4xf32>) attributes {nova.kernel, nova.ins = 1 : i64, nova.outs = 1 : i64, nova.work = 4 : i64, nova.flops = 4 : i64, nova.core = "vector", nova.launch = array<i64: 4, 64, 0>} {
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %c64 = arith.constant 64 : index
    gpu.launch blocks(%b, %by, %bz) in (%gx = %c4, %gy = %c1, %gz = %c1) threads(%t, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1) {
      %0 = memref.load %x[%b] : memref<4xf32>
      memref.store %0, %y[%b] : memref<4xf32>
      gpu.terminator
    }
    return
  }
  func.func private @kernel_1(%x: memref<4xf32>, %y: memref<4xf32>) attributes {nova.kernel, nova.ins = 1 : i64, nova.outs = 1 : i64, nova.work = 1 : i64, nova.flops = 1 : i64, nova.core = "vector", nova.launch = array<i64: 1, 32, 128>} {
    %c1 = arith.constant 1 : index
    %c32 = arith.constant 32 : index
    gpu.launch blocks(%b, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%t, %ty, %tz) in (%sx = %c32, %sy = %c1, %sz = %c1) {
      %0 = memref.load %x[%b] : memref<4xf32>
      gpu.barrier
      memref.store %0, %y[%b] : memref<4xf32>
      gpu.terminator
    }
    return
  }
  // CHECK: func.func @main
  // CHECK: call @kernels_0_1(%arg0, %arg0, %{{.*}}, %{{.*}})
  // CHECK-NEXT: call @kernel_2
  func.func private @kernel_2(%x: memref<4xf32>, %y: memref<4xf32>, %z: memref<4xf32>) attributes {nova.kernel, nova.ins = 2 : i64, nova.outs = 1 : i64, nova.work = 4 : i64, nova.flops = 4 : i64, nova.core = "vector", nova.launch = array<i64: 4, 64, 0>} {
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %c64 = arith.constant 64 : index
    gpu.launch blocks(%b, %by, %bz) in (%gx = %c4, %gy = %c1, %gz = %c1) threads(%t, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1) {
      %0 = memref.load %x[%b] : memref<4xf32>
      %1 = memref.load %y[%b] : memref<4xf32>
      %2 = arith.addf %0, %1 : f32
      memref.store %2, %z[%b] : memref<4xf32>
      gpu.terminator
    }
    return
  }
  func.func @main(%x: memref<4xf32>, %out: memref<4xf32>, %workspace: memref<32xi8>) attributes {nova.inputs = 1 : i64, nova.outputs = 1 : i64, nova.workspace = 32 : i64} {
    %c0 = arith.constant 0 : index
    %a = memref.view %workspace[%c0][] : memref<32xi8> to memref<4xf32>
    call @kernel_0(%x, %a) : (memref<4xf32>, memref<4xf32>) -> ()
    %c16 = arith.constant 16 : index
    %b = memref.view %workspace[%c16][] : memref<32xi8> to memref<4xf32>
    call @kernel_1(%x, %b) : (memref<4xf32>, memref<4xf32>) -> ()
    call @kernel_2(%a, %b, %out) : (memref<4xf32>, memref<4xf32>, memref<4xf32>) -> ()
    return
  }
}
