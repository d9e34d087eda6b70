"""Exact top-k and argmax over a vocabulary, several times as fast as TensorFlow's on a CPU.

TensorFlow's top-k pushes every value through a heap. The functions here first take the maximum of
each chunk of values. The k best values are in the k chunks with the largest maxima, so only these
chunks go through the heap.

Shapes: R sentences, K hypotheses of a sentence, V values of a hypothesis, k best values, C chunks
of a hypothesis, S values of a chunk.
"""

import tensorflow as tf

CHUNK_SIZES = range(64, 31, -1)
"""Preferred numbers of values per chunk, best first. A size that divides V saves a copy of the
values.
"""


def top_k(values: tf.Tensor, offsets: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the k largest sums of a value and its hypothesis's offset, for each sentence.

    The order is that of tf.math.top_k: the largest sum first; of equal sums, that of the earlier
    hypothesis, then that of the value with the lower index.

    Args:
        values: floats [R, K, V].
        offsets: floats [R, K, 1], the numbers to add to the values of each hypothesis.

    Returns:
        The sums [R, k], and for each of them the index of its hypothesis and the index of its
        value, int64 [R, k]. If K * V < k, there are only K * V sums.
    """
    hypotheses = values.shape[1]
    size = values.shape[2]
    if hypotheses is None or size is None or size < 4 * k * CHUNK_SIZES[0]:
        size = size or tf.shape(values)[2]
        sums = tf.reshape(values + offsets, [-1, tf.shape(values)[1] * size])
        best, indices = top_k_of_rows(sums, tf.minimum(k, tf.shape(sums)[1]))
        size = tf.cast(size, tf.int64)
        return best, indices // size, indices % size
    chunks = split(values)
    count, chunk_size = chunks.shape[2:]
    # The k chunks with the largest maxima, in ascending order, so that equal sums keep the order of
    # their indices.
    maxima = tf.reshape(tf.reduce_max(chunks, axis=3) + offsets, [-1, hypotheses * count])
    numbers = tf.sort(top_k_of_rows(maxima, k)[1], axis=1)  # [R, k]
    # The sums in these chunks: [R, K * C, S] --> [R, k, S]
    sums = tf.gather(
        tf.reshape(chunks, [-1, hypotheses * count, chunk_size]), numbers, batch_dims=1
    )
    sums += tf.gather(offsets, numbers // count, batch_dims=1)
    best, places = top_k_of_rows(tf.reshape(sums, [-1, k * chunk_size]), k)
    numbers = tf.gather(numbers, places // chunk_size, batch_dims=1)
    return best, numbers // count, numbers % count * chunk_size + places % chunk_size


def top_k_of_rows(rows: tf.Tensor, k: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the k largest values of each row of a matrix, largest first, and their indices as
    int64.
    """
    best, indices = tf.math.top_k(rows, k)
    return best, tf.cast(indices, tf.int64)


def argmax(values: tf.Tensor) -> tf.Tensor:
    """Returns the index of the largest of each hypothesis's values, floats [R, K, V], as int64 [R,
    K].
    """
    if values.shape[2] is None:
        return tf.argmax(values, axis=2)
    chunks = split(values)
    number = tf.argmax(tf.reduce_max(chunks, axis=3), axis=2)  # the best chunk
    place = tf.argmax(tf.gather(chunks, number, batch_dims=2), axis=2)
    return number * chunks.shape[3] + place


def split(values: tf.Tensor) -> tf.Tensor:
    """Returns floats [R, K, V] as chunks [R, K, C, S]. If no chunk size divides V, the last chunk
    ends with -inf.
    """
    hypotheses, size = values.shape[1:]
    chunk_size = next(
        (chunk_size for chunk_size in CHUNK_SIZES if size % chunk_size == 0), CHUNK_SIZES[0]
    )
    if remainder := size % chunk_size:
        values = tf.pad(
            values, [[0, 0], [0, 0], [0, chunk_size - remainder]], constant_values=float("-inf")
        )
    return tf.reshape(
        values, [-1, hypotheses or tf.shape(values)[1], values.shape[2] // chunk_size, chunk_size]
    )
