
struct Negate {
  MutView x;
};

// For a test of the recipe: x becomes -x, in place; f32, contiguous.
ROTA_API void negate(Encoder& encoder, const Negate& call);
