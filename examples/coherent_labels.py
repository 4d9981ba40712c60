"""A taxonomy from a CSV file behind a network: predictions that cannot break it, with a proof."""

from pathlib import Path

import torch

import latentgamma as lg

taxonomy = lg.Requirements.load(Path(__file__).parent / "product_taxonomy.csv")
labels = taxonomy.labels
layer = taxonomy.layer(labels)
print(layer.plan())

# Descriptions of products, here random vectors; the labels follow from them and satisfy the taxonomy.
torch.manual_seed(0)
x = torch.randn(400, 16)
y = layer.decide(x @ torch.randn(16, len(labels)) - 3)
print(taxonomy.check(y))

network = torch.nn.Linear(16, len(labels))
optimizer = torch.optim.Adam(network.parameters(), 0.05)
for _ in range(60):
    optimizer.zero_grad()
    layer.loss(network(x[:300]), y[:300]).backward()
    optimizer.step()

layer.eval()
logits = network(x[300:]).detach()
print("by a threshold:", taxonomy.check(logits > 0))
print("by the layer:", taxonomy.check(layer.decide(logits)))
print("average precision:", round(lg.average_precision(y[300:], layer(logits)), 3))
print(layer.certificate().require())
changed = layer.change(logits).any(1).nonzero().flatten()
if len(changed):
    print(layer.explain(logits[changed[0]]))
