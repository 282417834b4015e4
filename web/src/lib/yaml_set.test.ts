import assert from 'node:assert/strict';
import { test } from 'node:test';
import { flatYaml } from './flat_yaml.ts';
import { scalar, setYaml } from './yaml_set.ts';

const FILE = `# mine
name: shapes  # a name
model: {name: resnet18}
train:
  epochs: 10   # enough
  global_batch: 256

after: [12, 13]
`;

test('a value is changed where it stands, and nothing else', () => {
  assert.equal(setYaml(FILE, 'name', 'rn50'), FILE.replace('name: shapes', 'name: rn50'));
  assert.equal(setYaml(FILE, 'train.epochs', '90'), FILE.replace('epochs: 10 ', 'epochs: 90 '));
  assert.equal(setYaml(FILE, 'model.name', 'vit_b_16'), FILE.replace('resnet18', 'vit_b_16'));
});

test('what is not there is put beside what belongs to it, or at the end', () => {
  assert.equal(
    setYaml(FILE, 'train.precision', 'fp32'),
    FILE.replace('global_batch: 256\n', 'global_batch: 256\n  precision: fp32\n'),
  );
  assert.equal(setYaml(FILE, 'model.classes', '10'), FILE.replace('resnet18}', 'resnet18, classes: 10}'));
  assert.equal(setYaml(FILE, 'optimizer.lr', '0.1'), `${FILE}optimizer:\n  lr: 0.1\n`);
  assert.equal(setYaml('', 'name', 'x'), 'name: x\n');
});

test('an empty value takes a setting out', () => {
  assert.equal(setYaml(FILE, 'train.epochs', ''), FILE.replace('  epochs: 10   # enough\n', ''));
  assert.equal(setYaml(FILE, 'model.name', ''), FILE.replace('name: resnet18', ''));
  assert.equal(setYaml(FILE, 'priority', ''), FILE);
});

test('what is no single value is left to a person', () => {
  assert.equal(setYaml(FILE, 'after', '12'), null);
  assert.equal(setYaml(FILE, 'train', 'x'), null);
  assert.equal(setYaml('resources: {nodes: {min: 1, max: 2}}\n', 'resources.nodes', '2'), null);
  assert.equal(setYaml('train: &t {epochs: 1}\n', 'train.epochs', '2'), null);
});

test('what YAML would read as something else is quoted', () => {
  for (const value of ['two words', 'a: b', '# x', '{a}', '-1,2', 'x:']) {
    const text = setYaml('', 'name', value)!;
    assert.equal(text, `name: ${JSON.stringify(value)}\n`);
    assert.equal(flatYaml(text).get('name'), value);
  }
  assert.equal(scalar('s3://bucket/a-b.tar'), 's3://bucket/a-b.tar');
});

test('a text stays one, whatever it looks like, and what is none is written as it is', () => {
  const numbers = [
    '123',
    '-1',
    '+.5',
    '1e5',
    '0x1F',
    '0o17',
    '1_000',
    '1:30',
    '.inf',
    '2026-11-26',
    '2026-11-26T10:00:00Z',
  ];
  for (const value of ['null', '~', 'Null', 'true', 'FALSE', 'yes', 'off', 'n', '@x', '%x', ...numbers]) {
    for (const file of ['', 'project: x # mine\n']) {
      const text = setYaml(file, 'project', value)!;
      assert.ok(text.startsWith(`project: ${JSON.stringify(value)}`), text);
      assert.equal(flatYaml(text).get('project'), value);
    }
    assert.equal(setYaml('model: {name: x}', 'model.name', value), `model: {name: ${JSON.stringify(value)}}`);
  }
  for (const value of ['nullable', 'vision', 'rn50-2', '2nd', '/data/1'])
    assert.equal(setYaml('', 'project', value), `project: ${value}\n`);
  for (const [name, value] of [
    ['train.epochs', '90'],
    ['optimizer.lr', '1e-3'],
    ['time_limit', '3600'],
    ['priority', '-5'],
  ] as const)
    assert.equal(flatYaml(setYaml('', name, value)!).get(name), value);
  assert.equal(setYaml('', 'priority', '7'), 'priority: 7\n');
});
