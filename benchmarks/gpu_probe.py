import torch, triton, time, sys
sys.path.insert(0,'src')
import latentgamma as lg
from latentgamma._kernels_cuda import *
def coeff(model):
    n=model.numbers(); w=n.weights
    return Coefficients(*(x.detach().float().cuda().contiguous() for x in (w.body,w.body_off,w.body_total-n.threshold,n.sharpness,n.amplitude,w.head,w.head_off,n.offset,n.gate.reshape(1))))
p=lg.generators.g4()
m=lg.oracle(p,lg.Constants.paper(),form='sparse')
st=Structure.of(p.M,p.R,*(x.cuda() for x in m.rules.support())); c=coeff(m)
def graphed(f):
    f(); torch.cuda.synchronize(); g=torch.cuda.CUDAGraph()
    with torch.cuda.graph(g): f()
    return triton.testing.do_bench(lambda: g.replay(), return_mode='median',rep=50)
for B in (1,500,16384):
    s=(torch.rand(B,p.M,device='cuda')<0.02).float()
    out,k=run(st,c,s,32,bump=False,keep=True); gr=torch.rand_like(out)
    f=graphed(lambda: run(st,c,s,32,bump=False,keep=False)); fk=graphed(lambda: run(st,c,s,32,bump=False,keep=True)); b=graphed(lambda: back(st,c,k,gr,bump=False))
    print(B,'forward',round(f,4),'keep',round(fk,4),'back',round(b,4),'(f+b)/f',round((fk+b)/f,2))
