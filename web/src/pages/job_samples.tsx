import type { SampleImages } from '../api/types.ts';
import { count, fixed, percent } from '../lib/format.ts';

/** Images of the newest validation with what the model made of them: some from all over the set, then the worst. */
export function Samples({
  samples,
  address,
}: {
  samples: SampleImages;
  address: (number: number) => string;
}) {
  const shown = samples.images.map((image, number) => ({ ...image, number }));
  const kinds = [
    { title: 'From all over the set', images: shown.filter((image) => !image.worst) },
    { title: 'With the highest loss', images: shown.filter((image) => image.worst) },
  ];
  return (
    <section class="panel" aria-label="Sample images">
      <header>
        <h2>Sample images</h2>
        <span class="muted">as the model answered them at step {count(samples.step)}</span>
      </header>
      {kinds.map(
        ({ title, images }) =>
          images.length > 0 && (
            <div key={title}>
              <h3 class="samples-title">{title}</h3>
              <ul class="samples">
                {images.map((image) => (
                  <li key={`${image.worst} ${image.name}`}>
                    <img
                      src={address(image.number)}
                      alt={`${image.name}: ${image.class_name}`}
                      loading="lazy"
                      width="96"
                      height="96"
                    />
                    <span title={image.name}>{image.class_name}</span>
                    <span class={image.right ? 'tone-ok' : 'tone-bad'}>
                      {image.right ? '✓ right' : `✗ ${image.answer}`} {percent(image.probability, 0)}
                    </span>
                    <span class="muted">loss {fixed(image.loss, 2)}</span>
                  </li>
                ))}
              </ul>
            </div>
          ),
      )}
    </section>
  );
}
