/** The job file that a page begins with: of the set that is named here, or else of a folder, since nothing has a name on an
 * imgd that is new. */
export function exampleOf(dataset: string | undefined): string {
  const images = dataset ? `dataset:${dataset}` : '/shared/shapes';
  return `name: shapes
resources:
  nodes: 1
  ranks_per_node: 1
model:
  name: resnet18
data:
  train: ${images}/train
  val: ${images}/val
train:
  epochs: 10
  global_batch: 256
`;
}
