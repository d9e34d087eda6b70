import opennmt


def model():
    return opennmt.models.Transformer(
        num_layers=1,
        num_units=16,
        num_heads=2,
        ffn_inner_dim=32,
        dropout=0,
        share_embeddings=opennmt.models.EmbeddingsSharingLevel.ALL,
    )
