"""Mistakes that a type checker has to find, one a line, with its code. Read by test_stubs.py."""

import nova

x = nova.tensor([1.0, 2.0])
x.sum(axes=0)  # expect: call-arg
x.sofmax()  # expect: attr-defined
nova.sofmax(x)  # expect: attr-defined
nova.softmax(x, axis="last")  # expect: arg-type
nova.gelu(x, approximate="erf")  # expect: arg-type
nova.exp("text")  # expect: arg-type
nova.matmul(x)  # expect: call-arg
x + "text"  # expect: operator
x.reshape("text")  # expect: arg-type
nova.nn.Liner(3, 4)  # expect: attr-defined
nova.optim.Adma(lr=1.0)  # expect: attr-defined
print(nova.knobs.thread)  # expect: attr-defined
text: str = nova.split(x, 2)[0]  # expect: assignment
