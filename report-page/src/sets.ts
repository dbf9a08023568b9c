// Sets of joints and of classes, as hexadecimal digits, the first member in the last digit.

export function members(text: string, size: number): Uint8Array {
  const found = new Uint8Array(size);
  for (let i = 0; i < size; i++) {
    const digit = parseInt(text[text.length - 1 - (i >> 2)] ?? "0", 16);
    found[i] = (digit >> (i & 3)) & 1;
  }
  return found;
}
