import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { LogLine } from '../api/types.ts';
import { differences, flatYaml } from './flat_yaml.ts';
import { diffLines } from './line_diff.ts';
import { levelOf } from './log_level.ts';
import { lineAt, lineName } from './logs.ts';

const FILE = `# a comment
name: a   # another
resources:
  nodes: {min: 2, max: 8}
  labels: {zone: "us-east-1a|b"}
data:
  train: 'dataset:x#1/train'
model:
    name: resnet50
phases:
  - {epochs: 10, image_size: 128}
  - epochs: 6
command:
  run: |
    echo a
    echo b
optimizer: {kind: sgd, betas: [0.9, 0.99]}
`;

test('a job file by dotted names', () => {
  const flat = flatYaml(FILE);
  const rows: [string, string][] = [
    ['name', 'a'],
    ['resources.nodes.min', '2'],
    ['resources.nodes.max', '8'],
    ['resources.labels.zone', 'us-east-1a|b'],
    ['data.train', 'dataset:x#1/train'],
    ['model.name', 'resnet50'],
    ['phases.1.epochs', '10'],
    ['phases.1.image_size', '128'],
    ['phases.2.epochs', '6'],
    ['command.run', '    echo a\n    echo b'],
    ['optimizer.kind', 'sgd'],
    ['optimizer.betas', '[0.9, 0.99]'],
  ];
  for (const [name, value] of rows) assert.equal(flat.get(name), value, name);
  assert.equal(flat.size, rows.length);
});

test('of a list each item has settings of its own, however it is written', () => {
  const phases = [
    'phases: [{epochs: 18, image_size: 128}, {epochs: 12, image_size: 192}]',
    'phases:\n- epochs: 18\n  image_size: 128\n- epochs: 12\n  image_size: 192',
    'phases:\n  - {epochs: 18, image_size: 128}\n  -\n    epochs: 12\n    image_size: 192\n',
  ];
  assert.deepEqual(differences(phases), []);
  assert.deepEqual(differences([phases[1]!, phases[1]!.replace('128', '160')]), [
    { name: 'phases.1.image_size', values: ['128', '160'] },
  ]);
  assert.equal(flatYaml('after:\n  - 3\n  - pre').get('after'), '3, pre');
});

test('settings that differ, by name; what is the same is left out', () => {
  const found = differences(['a: 1\nb: {c: 2}', 'b:\n  c: 3\na: 1', 'a: 1']);
  assert.deepEqual(found, [{ name: 'b.c', values: ['2', '3', undefined] }]);
  assert.deepEqual(differences(['a: 1', 'a:   1  # one']), []);
});

test('what changed between two texts', () => {
  const kinds = (a: string, b: string) =>
    diffLines(a.split('|'), b.split('|')).map(
      (line) => `${{ same: ' ', added: '+', removed: '-' }[line.kind]}${line.text}`,
    );
  assert.deepEqual(kinds('a|b|c', 'a|b|c'), [' a', ' b', ' c']);
  assert.deepEqual(kinds('a|b|c', 'a|x|c'), [' a', '-b', '+x', ' c']);
  assert.deepEqual(kinds('a|c', 'a|b|c'), [' a', '+b', ' c']);
  assert.deepEqual(kinds('a|b|c|d', 'b|d|e'), ['-a', ' b', '-c', ' d', '+e']);
});

test('levels of log lines', () => {
  const rows: [string, string][] = [
    ['[error] rank=3 failed', 'error'],
    ['2026-11-23 10:00:00.123 [warning] slow shard', 'warning'],
    ['[info] errors=0 warnings=0', 'info'],
    ['[debug] loader: an error was retried', 'debug'],
    ['Traceback (most recent call last):', 'error'],
    ['UserWarning: deprecated', 'info'],
    ['WARNING: no GPU', 'warning'],
    ['step 5 loss 2.1', 'info'],
  ];
  for (const [text, level] of rows) assert.equal(levelOf(text), level, text);
});

test('a line has a name, which tells of it', () => {
  const line: LogLine = {
    rank: 3,
    line_number: '120',
    time_us: '7',
    is_stderr: false,
    text: '',
    generation: '2',
  };
  assert.equal(lineName(line), '2.3.120');
  assert.deepEqual(lineAt('2.3.120'), { generation: '2', rank: 3, number: 120 });
  for (const text of ['', '2.3', '2.3.x', '2.3.120.1']) assert.equal(lineAt(text), null, text);
});
