import assert from 'node:assert/strict';
import { test } from 'node:test';
import { flatYaml } from './flat_yaml.ts';
import { exampleOf } from './job_example.ts';

test('the example names a data set only where there is one', () => {
  assert.equal(flatYaml(exampleOf('imagenet')).get('data.train'), 'dataset:imagenet/train');
  assert.equal(flatYaml(exampleOf('imagenet')).get('data.val'), 'dataset:imagenet/val');
  assert.equal(flatYaml(exampleOf(undefined)).get('data.train'), '/shared/shapes/train');
});
